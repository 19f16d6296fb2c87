"""`python -m jaxmf` is the command line."""

from jaxmf.cli import main

if __name__ == "__main__":
    main()
