"""What is asked of a level about a planted mistake."""


def assert_said(level, mistake):
    """It failed, a finding names the place, and one that does has a known explanation that names
    the cause."""
    assert level.status == "failed"
    located = [
        each
        for each in level.findings
        if any(text in f"{each.place} {each.what}" for text in mistake.place)
    ]
    assert located, level.findings
    causes = [
        each.explanation.cause
        for each in located
        if each.explanation and each.explanation.known
    ]
    assert any(text in cause for text in mistake.cause for cause in causes), (
        level.findings
    )
