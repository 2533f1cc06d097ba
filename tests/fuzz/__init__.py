"""Damaged inputs, drawn by a seed, through the product's readers: whatever escapes as an exception is a finding.

Each module beside this one, but for ``frame``, is a kind and offers

* ``cases(seed) -> Iterator[case]``: without end; case n depends on the seed and n alone. A case has a ``repr`` of one
  line, or is a ``frame.Case``;
* ``try_one(case) -> str``: feeds it to the product and gives one word for the outcome (``ok``, a reason code,
  ``refused``). A refusal that the product means (``UserError``, ``DecodeError``) is an outcome and is caught there;
  anything else is left to escape. What must hold whatever is damaged is asserted;
* ``SHORT``: how many cases the unit test tries, for less than 3 s.

``python tests/fuzz --count 20000 --kind images`` (or ``make fuzz``) tries many; ``tests/test_fuzz.py`` a few.
"""
