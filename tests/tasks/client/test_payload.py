"""What a client is sent: which references, how many bytes, and what decides a training's result."""

import dataclasses

import pytest

from tasks.client.payload import OWN, REFERENCE, Payload, Sent
from tasks.core.records import ModelRef

P = [ModelRef(f"p{k}", f"digest{k}", 100) for k in range(3)]
START = ModelRef("s", "start", 100)
COPY = [dataclasses.replace(P[0], uri=f"copy {k}") for k in range(3)]  # equal tensors in other places


def sent(*models, own=None, copies=1):
    return tuple(Sent(ref, OWN if k == own else REFERENCE, copies) for k, ref in enumerate(models))


@pytest.mark.parametrize(
    ("references", "own", "need", "expected", "place"),
    [
        (P, 1, "none", (), None),
        ([], 1, "none", (), None),
        ([], 1, "own_cluster", (), None),
        ([], 1, "all", (), None),
        (P, 1, "own_cluster", (Sent(P[1], OWN),), 0),
        (P[:1], None, "own_cluster", sent(P[0]), None),
        (P, None, "own_cluster", sent(P[0]), None),
        (P, 1, "all", sent(*P, own=1), 1),
        (P, None, "all", sent(*P), None),
        (P[:1], 0, "all", sent(P[0], own=0), 0),
        ([P[0]] * 3, 2, "all", sent(P[0], own=0, copies=3), 0),
        ([P[0]] * 3, None, "all", sent(P[0], copies=3), None),
        ([P[0]] * 3, 2, "own_cluster", sent(P[0], own=0), 0),
        (COPY, 2, "all", sent(COPY[0], own=0, copies=3), 0),
        ([P[0], P[0], P[1]], 0, "all", sent(P[0], P[0], P[1], own=0), 0),  # only if all are equal
    ],
)
def test_a_client_is_sent_the_references_it_needs(references, own, need, expected, place):
    payload = Payload.of(START, references=references, own=own)
    reduced = payload.reduced(need)
    assert (reduced.references, reduced.own_reference) == (expected, place)
    assert dataclasses.replace(reduced, references=payload.references) == payload, "the rest stays"
    assert reduced.reduced(need) == reduced


def test_the_start_is_the_reference_unless_others_are_given():
    assert Payload.of(START).references == (Sent(START),) == Payload.of(START, references=[START]).references
    assert Payload.of(START, references=[]).references == ()
    assert Payload.of(START, own=0).own_reference == 0


def test_what_a_payload_holds():
    payload = Payload.of(START, references=[], method=P[0])
    assert payload.start == Sent(START, "start") and payload.method == Sent(P[0], "method")
    assert payload.private is payload.personal is None
    assert Payload.of(START, references=[], at_client=True).start == Sent(START, "start", travels=False)
    assert Payload.of(START).method is None


def test_what_the_client_has_already_does_not_travel():
    payload = Payload.of(START, references=P, at_client=True, held=[P[0], P[2]])
    assert [part.travels for part in (payload.start, *payload.references)] == [False, False, True, False]
    assert payload.bytes == payload.naive_bytes == P[1].bytes
    assert payload.identity() == Payload.of(START, references=P).identity()


def test_a_clients_own_tensors_replace_those_given_before():
    payload = Payload.of(START, references=P, own=1, method=P[2])
    own = payload.with_state(P[0], P[1])
    assert (own.private, own.personal) == (Sent(P[0], "private", travels=False), Sent(P[1], "personal"))
    assert dataclasses.replace(own, private=None, personal=None) == payload
    assert own.with_state(None, None) == payload
    assert own.with_state(None, P[2]).private is None and own.with_state(P[2], None).personal is None


def sizes(start, *references, method=None, private=None, personal=None, **options):
    payload = Payload.of(start, references=references, method=method, **options).with_state(private, personal)
    payload = payload.reduced("all")
    return payload.bytes, payload.naive_bytes


def test_bytes_of_what_travels():
    control, kept, made = ModelRef("c", "control", 30), ModelRef("k", "kept", 7), ModelRef("m", "made", 9)
    assert sizes(START) == (100, 100)
    assert sizes(START, method=control) == (130, 130)
    assert sizes(START, private=kept) == (100, 100), "it is with the client"
    assert sizes(START, private=kept, personal=made) == (109, 109)
    assert sizes(START, method=control, personal=made, at_client=True) == (39, 39)
    assert sizes(START, at_client=True) == (0, 0)
    assert sizes(START, *P) == (400, 400)


def test_equal_tensors_are_sent_once_but_counted_as_papers_send_them():
    # The global model is start and reference, and sent once; its K copies count K times in the naive number.
    assert sizes(START, START) == (100, 100)
    assert sizes(START, START, START, START) == (100, 300)
    assert sizes(dataclasses.replace(START, uri="elsewhere"), START) == (100, 100)
    # Prototypes that happen to be equal beside one that is not: two sets of tensors, three models.
    assert sizes(P[0], P[0], P[0], P[1]) == (200, 300)
    # A start that is with the client is a reference all the same.
    assert sizes(START, START, P[0], at_client=True) == (200, 200)
    assert sizes(P[0], START, at_client=True) == (100, 100)


def identity(start=START, references=(P[0], P[1]), own=0, private=None, personal=None, **options):
    return Payload.of(start, references=references, own=own, **options).with_state(private, personal).identity()


def test_the_identity_covers_tensors_roles_and_copies():
    different = [
        identity(),
        identity(start=P[2]),
        identity(references=(P[1], P[0])),
        identity(references=(P[0],)),
        identity(references=()),
        identity(own=1),
        identity(own=None),
        identity(method=P[2]),
        identity(private=P[2]),
        identity(personal=P[2]),
        identity(private=P[2], personal=P[2]),
        Payload.of(START, references=[P[0]] * 2).reduced("all").identity(),
        Payload.of(START, references=[P[0]] * 3).reduced("all").identity(),
        Payload.of(START, references=[P[0]]).identity(),
    ]
    assert len({repr(one) for one in different}) == len(different)


def test_the_identity_ignores_places_and_what_travels():
    def moved(ref):
        return dataclasses.replace(ref, uri=f"elsewhere/{ref.uri}")

    given = {"references": (P[0], P[1]), "method": P[2], "private": P[0], "personal": P[1]}
    there = {"references": (moved(P[0]), moved(P[1]))} | {
        name: moved(given[name]) for name in ("method", "private", "personal")
    }
    assert identity(**given) == identity(start=moved(START), **there)
    assert identity(at_client=True) == identity(at_client=False)
