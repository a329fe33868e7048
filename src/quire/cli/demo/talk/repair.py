"""The conversation's second part: a patch, a failing test, another patch, and the night replayed."""

from quire import Message
from quire.cli.demo.talk.said import assistant, called, user

REPAIR: tuple[Message, ...] = (
    user("Fix it, but the public signature of charge() stays as it is: billing-web calls it too."),
    *called(
        "call_07",
        "apply_patch",
        {"path": "src/settlement/charges.py", "summary": "one idempotency key per invoice"},
        '''\
--- a/src/settlement/charges.py
+++ b/src/settlement/charges.py
@@ -72,9 +72,15 @@
     if invoice.paid_at is not None:
         return invoice.receipt
-    return retry(lambda: _send(invoice, client), attempts=3, on=GatewayTimeout)
+    key = _key(invoice)
+    return retry(lambda: _send(invoice, client, key), attempts=3, on=GatewayTimeout)
+
+
+def _key(invoice: Invoice) -> str:
+    """The same for every attempt at one invoice: to the gateway they are one charge."""
+    return str(uuid5(_NAMESPACE, invoice.number))

-def _send(invoice: Invoice, client: Gateway) -> Receipt:
+def _send(invoice: Invoice, client: Gateway, key: str) -> Receipt:
@@ -86,2 +92,2 @@
-    headers = {"Idempotency-Key": str(uuid4())}
+    headers = {"Idempotency-Key": key}
applied, 1 file changed, 10 insertions, 3 deletions, commit 4be90d7 on branch fix/pay-4471
''',
    ),
    *called(
        "call_08",
        "run_tests",
        {"path": "tests/settlement"},
        """\
============================= test session starts ==============================
collected 61 items
tests/settlement/test_job.py ......................                       [ 36%]
tests/settlement/test_charges.py ............F.......                     [ 68%]
tests/settlement/test_retry.py ........                                   [ 81%]
tests/settlement/test_report.py ...........                               [100%]
=================================== FAILURES ===================================
____________________ test_a_changed_amount_is_a_new_charge _____________________
    def test_a_changed_amount_is_a_new_charge(gateway, invoice):
        first = charge(invoice, client=gateway)
        invoice.reopen(amount=Decimal("12.00"))
>       second = charge(invoice, client=gateway)
E       settlement.gateway.KeyReused: 409 key 5d0c2f0e-7c1a-5a3b-9a55-0e6f4f1f9a10 was used
E       with another body (amount 18.50, now 12.00)
tests/settlement/test_charges.py:93: KeyReused
=========================== short test summary info ============================
FAILED tests/settlement/test_charges.py::test_a_changed_amount_is_a_new_charge
======================== 1 failed, 60 passed in 4.71s ==========================
""",
    ),
    assistant(
        "One test fails, and it is right: an invoice that is reopened with another amount is a new charge. The "
        "key has to know the amount as well."
    ),
    *called(
        "call_09",
        "apply_patch",
        {"path": "src/settlement/charges.py", "summary": "the key knows the amount"},
        '''\
--- a/src/settlement/charges.py
+++ b/src/settlement/charges.py
@@ -79,3 +79,3 @@
 def _key(invoice: Invoice) -> str:
-    """The same for every attempt at one invoice: to the gateway they are one charge."""
-    return str(uuid5(_NAMESPACE, invoice.number))
+    """The same for every attempt at one amount of one invoice: to the gateway they are one charge."""
+    return str(uuid5(_NAMESPACE, f"{invoice.number}:{invoice.amount}:{invoice.currency}"))
applied, 1 file changed, 2 insertions, 2 deletions, commit a17c3e2 on branch fix/pay-4471
''',
    ),
    *called(
        "call_10",
        "run_tests",
        {"path": "tests/settlement"},
        """\
============================= test session starts ==============================
collected 61 items
tests/settlement/test_job.py ......................                       [ 36%]
tests/settlement/test_charges.py ....................                     [ 68%]
tests/settlement/test_retry.py ........                                   [ 81%]
tests/settlement/test_report.py ...........                               [100%]
============================= 61 passed in 4.66s ===============================
""",
    ),
    assistant(
        "All 61 tests pass. charge() is called as before; the key is made from number, amount and currency. "
        "Commits 4be90d7 and a17c3e2 on fix/pay-4471."
    ),
    user("顺便问一下：退款也在这个分支里做吗？"),
    assistant(
        "不建议。退款要动账，应该单独审核，财务也说了先要完整名单。"
        "我可以另开工单 PAY-4480，把 17 笔退款的名单附上，这个分支只修复重复扣款。"
    ),
    user("Agreed, open PAY-4480. And I want to see that it holds: replay that night with the slow gateway."),
    *called(
        "call_11",
        "create_ticket",
        {"title": "Refund the second charge of 17 invoices (PAY-4471)", "assignee": "Oksana Dahl"},
        """\
created PAY-4480  "Refund the second charge of 17 invoices (PAY-4471)"
assignee: Oksana Dahl   due: 2026-03-13 17:00   attachments: double_charges_2026-03-11.csv (17 rows)
""",
    ),
    *called(
        "call_12",
        "replay_night",
        {"night": "2026-03-11", "branch": "fix/pay-4471", "gateway": "recorded"},
        """\
replay of settlement-2026-03-11 against the recorded gateway, branch fix/pay-4471 (a17c3e2), speed 60x
invoices due                     2,316
requests sent                    2,333
  first attempts                 2,316
  second attempts                   17
  third attempts                     0
timeouts injected                   17   at the recorded times, 02:13:39 to 02:18:52
keys used                        2,316
keys used more than once            17   INV-20931 INV-20944 INV-20958 INV-20961 INV-20963 INV-20970 INV-20971
                                         INV-20977 INV-20979 INV-20985 INV-20986 INV-20990 INV-20994 INV-20998
                                         INV-21003 INV-21007 INV-21012
charges at the gateway           2,316   each invoice once
charged in total            148,204.60 EUR, the sum of the invoices
answers 409 KeyReused                0
slowest request                 31.4 s
duration                        26.2 s
report written to               var/replay/2026-03-11-a17c3e2.json
""",
    ),
    assistant(
        "PAY-4480 is open. In the replay 17 requests time out as they did that night, 17 second attempts go out "
        "under the same keys, and the gateway books 2,316 charges for 2,316 invoices: 148,204.60 EUR, not a cent "
        "more."
    ),
)
