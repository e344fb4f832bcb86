"""Measures the rules against torch's own samples; with the oracle the only code of ours that imports torch.

`calls` and `denominator` know torch's private test tables, `running` sends a call through a rule's source path,
`compare` says whether both sides agree, `ops` and `modules` measure one name, `runner` all of them, each batch in a
process of its own. Results live in the converter's `coverage.json`, from which its page is made without measuring.
"""
