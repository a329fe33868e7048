"""The conversation's first part: two rules, a ticket, a log, a list, and the line of code behind it all."""

from quire import Message
from quire.cli.demo.talk.said import assistant, called, user

CAUSE: tuple[Message, ...] = (
    user(
        "Morning. The nightly settlement charged some customers twice, ticket PAY-4471. Two rules before you "
        "start:\n"
        "1. Leave everything under db/migrations/ alone: the schema is frozen until 2026-04-02.\n"
        "2. Never query the live database. Use the replica on port 6543.\n"
        "最后的总结请用中文写，财务的同事只看中文。"
    ),
    *called(
        "call_01",
        "read_ticket",
        {"ticket": "PAY-4471"},
        """\
PAY-4471  [severity 1]  Customers charged twice in the nightly settlement
reporter: Oksana Dahl (finance)      opened: 2026-03-11 08:42      component: settlement
labels: money, nightly, customer-visible     linked: OPS-1187 (gateway latency), PAY-3902 (retry policy)

Since this morning support has 9 complaints about two identical charges in one night. All of them are monthly
plans, all were charged between 02:10 and 02:20. The second charge has its own reference at the gateway, so the
gateway did not see it as a repeat.

Examples
  cus_5Hq2  INV-20931   74.90 EUR   gw_91af03  and  gw_91b77c
  cus_8Kd9  INV-20944  129.00 EUR   gw_91af1e  and  gw_91b790
  cus_2Wm4  INV-20958   18.50 EUR   gw_91af44  and  gw_91b7a5

Comments
  08:57  Oksana Dahl: No refunds yet please, finance needs the complete list first.
  09:15  Tomasz Reyes: OPS-1187 says the gateway answered slowly that night, 30 s and more, from 02:09 on.
  09:31  Oksana Dahl: 退款必须在周五 17:00 之前完成。
""",
        says="I'll read the ticket first.",
    ),
    *called(
        "call_02",
        "list_files",
        {"path": "src/settlement", "also": "tests db deploy docs"},
        """\
src/settlement/__init__.py          14 lines
src/settlement/job.py              212 lines   nightly entry point
src/settlement/charges.py          148 lines   charge(), refund()
src/settlement/gateway.py          131 lines   HTTP client of the payment gateway
src/settlement/retry.py             57 lines   retry with backoff
src/settlement/report.py            90 lines
tests/settlement/test_job.py       171 lines
tests/settlement/test_charges.py   118 lines
tests/settlement/test_retry.py      44 lines
db/migrations/0001_base.sql … 0047_plan_prices.sql (47 files)
deploy/nightly.yaml                 38 lines
docs/settlement.md                  73 lines
""",
    ),
    assistant(
        "Three invoices are named and nine complaints are open. The gateway took the second charge for a new one,"
        " so either we sent it under a new reference or the job ran twice. The log of that night should tell "
        "which."
    ),
    user("Then look at the log of that night."),
    *called(
        "call_03",
        "read_log",
        {"file": "settlement-2026-03-11.log", "grep": "run_|WARN|ERROR|retry|charge sent|accepted"},
        """\
2026-03-11 02:00:00.113 INFO  job      run_8c41f2 started, 2,316 invoices due, 8 workers
2026-03-11 02:04:31.870 INFO  job      run_8c41f2 progress 800/2,316
2026-03-11 02:08:58.402 INFO  job      run_8c41f2 progress 1,544/2,316
2026-03-11 02:09:12.006 WARN  gateway  POST /v2/charges took 11.204 s (INV-20902)
2026-03-11 02:10:40.551 WARN  gateway  POST /v2/charges took 28.930 s (INV-20927)
2026-03-11 02:13:39.118 ERROR gateway  GatewayTimeout after 30.000 s (INV-20931, attempt 1 of 3)
2026-03-11 02:13:39.121 INFO  retry    INV-20931 attempt 2 in 30.0 s
2026-03-11 02:13:41.774 ERROR gateway  GatewayTimeout after 30.000 s (INV-20944, attempt 1 of 3)
2026-03-11 02:13:41.775 INFO  retry    INV-20944 attempt 2 in 30.0 s
2026-03-11 02:14:09.122 INFO  charges  INV-20931 charge sent, key 0f5b7d1e-62c4-4a43-9d0a-7a1be0f0c512
2026-03-11 02:14:11.776 INFO  charges  INV-20944 charge sent, key c2b0d9aa-1b0e-4f9e-8f3c-52a4a9b7e6d1
2026-03-11 02:14:12.430 INFO  gateway  INV-20931 accepted as gw_91b77c
2026-03-11 02:14:13.020 INFO  gateway  INV-20944 accepted as gw_91b790
2026-03-11 02:14:58.207 ERROR gateway  GatewayTimeout after 30.000 s (INV-20958, attempt 1 of 3)
2026-03-11 02:15:28.210 INFO  charges  INV-20958 charge sent, key 7be21f60-9c9d-4b7c-b0a2-1d6e54c0e8f9
2026-03-11 02:15:29.004 INFO  gateway  INV-20958 accepted as gw_91b7a5
2026-03-11 02:19:47.660 WARN  gateway  latency back below 2 s
2026-03-11 02:26:03.915 INFO  job      run_8c41f2 finished: 2,316 charged, 17 retried, 0 failed
""",
        says="Reading the log from 02:00 to 02:30.",
    ),
    assistant(
        "The job ran once, run_8c41f2. From 02:13:39 on the gateway timed out, although it had taken the charge, "
        "and 17 charges were sent again. The second attempt for INV-20931 went out at 02:14:09.122 under a fresh "
        "key, 0f5b7d1e-…: to the gateway that is a new charge."
    ),
    user("How many customers, and how much money? Finance wants the list."),
    *called(
        "call_04",
        "query_replica",
        {
            "sql": "select customer, invoice, amount, first, second, plan from double_charges"
            " where night = '2026-03-11' order by invoice",
        },
        """\
 customer  | invoice   | amount  | first      | second     | plan
-----------+-----------+---------+------------+------------+-----------
 cus_5Hq2  | INV-20931 |   74.90 | gw_91af03  | gw_91b77c  | team
 cus_8Kd9  | INV-20944 |  129.00 | gw_91af1e  | gw_91b790  | business
 cus_2Wm4  | INV-20958 |   18.50 | gw_91af44  | gw_91b7a5  | solo
 cus_7Pz1  | INV-20961 |   18.50 | gw_91af4b  | gw_91b7ac  | solo
 cus_9Tr6  | INV-20963 |   74.90 | gw_91af50  | gw_91b7b1  | team
 cus_1Xn8  | INV-20970 |  129.00 | gw_91af5d  | gw_91b7bd  | business
 cus_4Lc0  | INV-20971 |   18.50 | gw_91af5f  | gw_91b7c0  | solo
 cus_6Vb3  | INV-20977 |   74.90 | gw_91af68  | gw_91b7c9  | team
 cus_3Gy5  | INV-20979 |   74.90 | gw_91af6a  | gw_91b7cc  | team
 cus_0Jd7  | INV-20985 |   18.50 | gw_91af75  | gw_91b7d6  | solo
 cus_5Ra9  | INV-20986 |  129.00 | gw_91af76  | gw_91b7d8  | business
 cus_8Mu2  | INV-20990 |   74.90 | gw_91af7c  | gw_91b7de  | team
 cus_2Fe1  | INV-20994 |   18.50 | gw_91af83  | gw_91b7e4  | solo
 cus_7So4  | INV-20998 |   74.90 | gw_91af88  | gw_91b7ea  | team
 cus_9Hi3  | INV-21003 |   18.50 | gw_91af90  | gw_91b7f1  | solo
 cus_1Ak6  | INV-21007 |   74.90 | gw_91af97  | gw_91b7f8  | team
 cus_4Zo8  | INV-21012 |  129.00 | gw_91afa0  | gw_91b803  | business
(17 rows, 31 ms, replica at 127.0.0.1:6543)
""",
    ),
    assistant(
        "17 customers, one charge too many each: 7 × 74.90, 4 × 129.00 and 6 × 18.50, together 1,151.30 EUR. Only"
        " 9 of them have complained so far. The list for finance is the table above; I asked the replica only."
    ),
    user("Good. Show me the code that does this."),
    *called(
        "call_05",
        "read_file",
        {"path": "src/settlement/charges.py", "lines": "71-91"},
        '''\
 71  def charge(invoice: Invoice, *, client: Gateway) -> Receipt:
 72      """Charge one invoice. Safe to call again: a paid invoice is not charged twice."""
 73      if invoice.paid_at is not None:
 74          return invoice.receipt
 75      return retry(lambda: _send(invoice, client), attempts=3, on=GatewayTimeout)
 76
 77
 78  def _send(invoice: Invoice, client: Gateway) -> Receipt:
 79      body = {
 80          "amount": str(invoice.amount),
 81          "currency": invoice.currency,
 82          "customer": invoice.customer,
 83          "description": f"{invoice.number} {invoice.plan}",
 84      }
 85      # the gateway treats two requests with one key as one charge for 24 h
 86      headers = {"Idempotency-Key": str(uuid4())}
 87      log.info("%s charge sent, key %s", invoice.number, headers["Idempotency-Key"])
 88      reply = client.post("/v2/charges", json=body, headers=headers, timeout=30.0)
 89      receipt = Receipt(reference=reply["id"], amount=invoice.amount)
 90      invoice.mark_paid(receipt)
 91      return receipt
''',
    ),
    *called(
        "call_06",
        "read_file",
        {"path": "src/settlement/retry.py", "lines": "9-19"},
        '''\
  9  def retry(action: Callable[[], T], *, attempts: int, on: type[Exception]) -> T:
 10      """Call until it succeeds, waiting 30 s between attempts; the last error is raised."""
 11      for attempt in range(1, attempts + 1):
 12          try:
 13              return action()
 14          except on:
 15              if attempt == attempts:
 16                  raise
 17              log.info("attempt %d in %.1f s", attempt + 1, WAIT)
 18              sleep(WAIT)
 19      raise AssertionError("attempts must be at least 1")
''',
    ),
    assistant(
        "Line 86 of charges.py is the cause: the key is made inside _send, so every attempt has a new one and the"
        " gateway cannot know that it is the same charge. The retry itself is right. The key must belong to the "
        "invoice, not to the attempt."
    ),
)
