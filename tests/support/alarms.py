"""What several tests ask of the alarms of a posterior."""


def kinds(post):
    """The kinds of its alarms, in order."""
    return [alarm.kind for alarm in post.alarms()]
