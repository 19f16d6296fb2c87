"""The report: one self-contained HTML page from a posterior."""

from jaxmf.report.page import read_notes as read_notes
from jaxmf.report.page import render as render
from jaxmf.report.page import report as report
from jaxmf.report.page import write_notes as write_notes
