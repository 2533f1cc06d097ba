"""Randomly damaged inputs for the product's readers: an exception that escapes is a finding.

Each module of this package that offers cases is a kind. It has

* ``cases(seed) -> Iterator[case]``: endless; case n depends only on the seed and n. A case has a ``repr`` of one line,
  or is a ``frame.Case``;
* ``try_one(case) -> str``: feeds it to the product and returns one word for the outcome (``ok``, a reason code,
  ``refused``). A deliberate refusal (``UserError``, ``DecodeError``) is an outcome and is caught there; any other
  exception escapes. Invariants are asserted;
* ``SHORT``: the number of cases of the unit test, for less than 3 s.

``python tests/fuzz --count 20000 --kind images`` (or ``make fuzz``) tries many; ``tests/project/test_fuzz.py`` a few.
"""
