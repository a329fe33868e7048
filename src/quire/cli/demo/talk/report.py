"""The conversation's last part: the schedule, and questions about what was said long before."""

from quire import Message
from quire.cli.demo.talk.said import assistant, called, user

REPORT: tuple[Message, ...] = (
    user("Could the job itself start twice? Look at how it is scheduled."),
    *called(
        "call_13",
        "read_file",
        {"path": "deploy/nightly.yaml"},
        """\
apiVersion: batch/v1
kind: CronJob
metadata:
  name: nightly-settlement
  namespace: payments
spec:
  schedule: "0 2 * * *"
  timeZone: Europe/Berlin
  concurrencyPolicy: Allow
  startingDeadlineSeconds: 900
  successfulJobsHistoryLimit: 14
  jobTemplate:
    spec:
      backoffLimit: 2
      activeDeadlineSeconds: 7200
      template:
        spec:
          restartPolicy: OnFailure
          containers:
            - name: settle
              image: registry.ledgerline.example/settlement:2026.03.2
              args: ["python", "-m", "settlement.job", "--workers", "8"]
              resources:
                requests: {cpu: 500m, memory: 512Mi}
                limits: {memory: 1Gi}
""",
    ),
    assistant(
        "It could: concurrencyPolicy is Allow, and on the night of 2026-10-25, when the clocks go back, 02:00 "
        "comes twice in Europe/Berlin. I would set it to Forbid and the time zone to Etc/UTC; with the stable key"
        " a second run would charge nobody twice within 24 h, but it should not start at all."
    ),
    user("Do that, and write it down in docs/settlement.md."),
    *called(
        "call_14",
        "apply_patch",
        {"path": "deploy/nightly.yaml docs/settlement.md", "summary": "never two runs at once; say why"},
        """\
--- a/deploy/nightly.yaml
+++ b/deploy/nightly.yaml
@@ -7,3 +7,3 @@
-  timeZone: Europe/Berlin
-  concurrencyPolicy: Allow
+  timeZone: Etc/UTC
+  concurrencyPolicy: Forbid
--- a/docs/settlement.md
+++ b/docs/settlement.md
@@ -31,2 +31,12 @@
+## One charge per invoice
+
+Every attempt at an invoice is sent with the same idempotency key, made from its number, amount and currency. The
+gateway books two requests with one key as one charge for 24 h. A reopened invoice with another amount has another
+key. Before PAY-4471 the key was made per attempt, and a timeout could charge a customer twice.
+
+The job runs at 02:00 UTC and never beside itself (`concurrencyPolicy: Forbid`). To see what a slow night does:
+`make replay NIGHT=2026-03-11`.
applied, 2 files changed, 11 insertions, 2 deletions, commit c90f5b8 on branch fix/pay-4471
""",
    ),
    *called(
        "call_15",
        "run_checks",
        {"branch": "fix/pay-4471"},
        """\
lint        ok    0 findings in 23 files
types       ok    0 errors in 23 files
tests       ok    412 passed in 38.2s
manifests   ok    deploy/nightly.yaml valid for batch/v1
docs        ok    14 links, 0 broken
coverage    ok    settlement 96.4 % (was 96.1 %)
build       ok    settlement:2026.03.3-rc1  sha256:6f0d1c93  84.1 MB
""",
    ),
    assistant(
        "Both are done in c90f5b8: the job never runs beside itself and starts at 02:00 UTC; docs/settlement.md "
        "has a section on it. All checks pass, 412 tests; the release candidate is settlement:2026.03.3-rc1."
    ),
    user("For audits I'd like the key stored with each charge. Add a column to the charges table in this branch?"),
    assistant(
        "Not in this branch. A column is a new file under db/migrations/, and you told me at the start to leave "
        "that folder alone because the schema is frozen until 2026-04-02. I can log the key with the receipt now,"
        " the log is kept for 400 days, and prepare the column for the day after the freeze."
    ),
    user(
        "Right, I forgot. Then two things for the incident report: the id of that run, and the exact time at "
        "which INV-20931 was sent again?"
    ),
    assistant("The run was run_8c41f2. The second attempt for INV-20931 was sent at 02:14:09.122 on 2026-03-11."),
    user("And the customer with INV-20986: who is it, and which reference do we refund?"),
    assistant("INV-20986 belongs to cus_5Ra9. The charge to refund is the second one, gw_91b7d8, over 129.00 EUR."),
    user(
        "Thanks. Which port was the replica on again, so that I can check it myself? And until when must the "
        "refunds be out?"
    ),
    assistant(
        "The replica is on port 6543. Finance asked for the refunds by Friday 17:00, which is 2026-03-13; that is"
        " the date on PAY-4480."
    ),
    user("Now the summary, as I asked for at the beginning."),
    assistant(
        "总结（PAY-4471）：2026-03-11 凌晨的结算（run_8c41f2）因网关超时重发了 17 笔扣款，"
        "每次重发都用了新的幂等键，17 位客户被重复扣款，共 1,151.30 欧元。\n"
        "修复在分支 fix/pay-4471：同一张发票、同一金额只用一个键；定时任务不再并行。"
        "重放当晚数据，2,316 张发票各扣一次。退款见 PAY-4480，须在周五 17:00 前完成。没有改动 db/migrations/。"
    ),
)
