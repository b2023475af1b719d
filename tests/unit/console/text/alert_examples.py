"""Alerts of every kind, each with its cause and its advice in words."""

from core.events.alerts import AlertParams, BatchHolder, params_of
from tests.support.looks import RIGHT_FELL

EXAMPLES: list[tuple[AlertParams, str, str]] = [
    (
        params_of("off", server="gpu", trouble="restarted", clients=("alice", "bob")),
        "gpu is off: restarted: its episodes are lost; on it then: alice, bob",
        "Users are answered 503 until it rolls again. 5 opens Engine: `s` starts it",
    ),
    (
        params_of("off", server="gpu", trouble="stopped by another client", probe="9 is best"),
        "gpu is off: 9 is best",
        "Users are answered 503 until it rolls again. 5 opens Engine: `s` starts it",
    ),
    (
        params_of("off", server="gpu", trouble="unplugged"),
        "gpu is off: unplugged",
        "Users are answered 503 until it rolls again. 5 opens Engine: `s` starts it",
    ),
    (
        params_of("lost", server="gpu", error="gone: refused"),
        "gpu does not answer: gone: refused",
        ("Check that it runs and that the URL is right; requests wait or are answered 503"),
    ),
    (
        params_of("refused", server="gpu", state="OFFLINE"),
        "users are answered 503: gpu is OFFLINE",
        "5 opens Engine: `s` starts it",
    ),
    (
        params_of("boot", server="gpu", minutes=5.0),
        "gpu has been BOOTING for more than 5 min",
        "A failed start stays so on a real server: stop the engine and start it again",
    ),
    (
        params_of("start", server="gpu", error="no job"),
        "gpu did not start: no job",
        "Stop it and try again",
    ),
    (
        params_of(
            "start",
            server="gpu",
            error="bad path",
            step="send the job",
            off=True,
            left="the engine is OFFLINE",
        ),
        "gpu did not start: `send the job` failed: bad path",
        "Correct the job, start it again. When it failed: the engine is OFFLINE",
    ),
    (
        params_of(
            "start", server="gpu", error="bad path", step="boot", left="the engine is BOOTING"
        ),
        "gpu did not start: `boot` failed: bad path",
        ("Stop the engine, correct the job, start it again. When it failed: the engine is BOOTING"),
    ),
    (
        params_of("start", server="gpu", error="refused", step="send the job", remedy="Free a GPU"),
        "gpu did not start: `send the job` failed: refused",
        "Free a GPU",
    ),
    (
        params_of("hold", ratings=1),
        "1 open rating holds up the weight update",
        (
            "3 opens Rate: `A` accepts all automatic rewards, `X` aborts them, or go on rating. "
            "For good, on 5: `h` the job for rating by hand, or `e` a larger batch"
        ),
    ),
    (
        params_of("hold", ratings=3, unscored=1, users=2),
        "3 open ratings hold up 2 waiting users",
        (
            "3 opens Rate: `A` accepts all automatic rewards, `S` re-scores a group "
            "without one (1), `X` aborts them, or go on rating. "
            "For good, on 5: `h` the job for rating by hand, or `e` a larger batch"
        ),
    ),
    (
        params_of("hold", ratings=2, unscored=2, users=1, rows=2),
        "2 open ratings hold up 1 waiting user and 2 rows of the mock user",
        (
            "3 opens Rate: `S` re-scores a group without one (2), `X` aborts them, or go on "
            "rating. For good, on 5: `h` the job for rating by hand, or `e` a larger batch"
        ),
    ),
    (
        params_of(
            "held",
            seconds=12.4,
            holders=(
                BatchHolder(
                    by="client",
                    count=5,
                    name="5f0c4d1e",
                    episodes=("aa", "bb", "cc"),
                    quiet=9.0,
                    left=50.4,
                ),
            ),
            users=1,
        ),
        (
            "ROLLING_POST for 12 s: 5 episodes held by client 5f0c4d1e, last seen 9 s "
            "ago (aa, bb, cc and 2 more), taken back in 50 s; 1 user waits"
        ),
        "Abort them to end the batch now, or wait for their end",
    ),
    (
        params_of(
            "held",
            seconds=30.0,
            holders=(
                BatchHolder(by="group", count=1, name="g1", episodes=("aa",), quiet=11.0),
                BatchHolder(by="groups", count=2),
                BatchHolder(by="nobody", count=1, episodes=("dd",)),
                BatchHolder(by="client", count=1, episodes=("ee",)),
            ),
        ),
        (
            "ROLLING_POST for 30 s: 1 episode of our group g1 (aa): no answer for 11 s; "
            "2 more groups of ours; 1 episode of ours that no group holds (dd); 1 "
            "episode held by client without a name (ee)"
        ),
        "Abort them to end the batch now, or wait for their end",
    ),
    (
        params_of("taken", server="gpu", group="0123456789abcdef", idle=20.4, limit=60.0),
        (
            "somebody else took an episode of group 0123456789ab on gpu: aborted after "
            "20 s of 60 s idle"
        ),
        (
            "Any client may abort any episode there. 5 opens Engine, `i` shows who is "
            "on it; the group goes on with what it has"
        ),
    ),
    (
        params_of("taken", server="gpu", group="g1", idle=20.4, limit=60.0, client="bob"),
        (
            "somebody else took an episode of group g1 on gpu: client bob has it now "
            "after 20 s of 60 s idle"
        ),
        (
            "Any client may abort any episode there. 5 opens Engine, `i` shows who is "
            "on it; the group goes on with what it has"
        ),
    ),
    (
        params_of("tokens", server="gpu", claimed=4, open=1, finished=1, rated=1),
        (
            "gpu was restarted. Lost: 4 claimed episodes, the answers of 1 open group, "
            "1 finished group of this update (1 human-rated)"
        ),
        (
            "Enter opens them: no update trains on finished ones, A asks one again; "
            "open ones get new episodes while users wait"
        ),
    ),
    (
        params_of("tokens", server="gpu", claimed=1, open=2),
        "gpu was restarted. Lost: 1 claimed episode, the answers of 2 open groups",
        (
            "Open groups get new episodes while their users wait, else they are "
            "aborted. Enter opens them"
        ),
    ),
    (
        params_of("tokens", server="gpu", tokens=True),
        "gpu was restarted. Lost: the tokens of all earlier episodes",
        "What was trained up to the last update is kept",
    ),
    (
        params_of("observe"),
        "observe mode: answers, rewards and ratings are recorded, nothing is trained",
        "To train, name a swarm server with --swarm-url",
    ),
    (
        params_of("upstream", error="key refused (401)"),
        "the upstream does not answer as it should: key refused (401)",
        "Check its key and the name of its model",
    ),
    (
        params_of("room", server="gpu", candidates=20, room=8),
        "20 candidates are wanted, gpu has 8 episodes at a time: 8 are used",
        "Lower proxy.repeats or what the hook returns, or raise the job's batch",
    ),
    (
        params_of("cut", window=1024),
        (
            "prompts are cut to 1024 tokens: answers will be poor, and these groups are "
            "not trained on"
        ),
        (
            "Use `ajet-console engine --backend torch --model smollm2` (4096 tokens) or a GPU "
            "server; `ajet-console engine --strict-context` refuses such prompts with a 400"
        ),
    ),
    (
        params_of("cut"),
        (
            "prompts are cut to the engine's window: answers will be poor, and these groups are "
            "not trained on"
        ),
        (
            "Use `ajet-console engine --backend torch --model smollm2` (4096 tokens) or a GPU "
            "server; `ajet-console engine --strict-context` refuses such prompts with a 400"
        ),
    ),
    (
        params_of("cut", window=4096),
        (
            "prompts are cut to 4096 tokens: answers will be poor, and these groups are "
            "not trained on"
        ),
        (
            "Use a GPU server; `ajet-console engine --strict-context` refuses such "
            "prompts with a 400"
        ),
    ),
    (
        params_of("session", name="wild", limit="3 requests a minute", query="again?"),
        "session wild is answered 429, it is over 3 requests a minute: again?",
        "Stop that client, or raise proxy.session_calls and proxy.session_cap",
    ),
    (
        params_of(
            "recovered",
            server="gpu",
            groups=1,
            unrated=1,
            outcomes={"ended": 2, "stray": 1},
            votes=("anna on g1 (tie)",),
            votes_lost=2,
        ),
        (
            "the proxy ended while 1 group was open (1 waiting for a rating) on "
            "gpu; 2 votes are lost, the server no longer holds the episodes: anna on g1 "
            "(tie) and 1 more; episodes: 2 finished and sent now, 1 claimed and not yet "
            "noted in the journal, given back"
        ),
        "Users without an answer were cut off. Enter opens the groups",
    ),
    (
        params_of("recovered", server="gpu", groups=2),
        "the proxy ended while 2 groups were open on gpu; they held no episode",
        "Users without an answer were cut off. Enter opens the groups",
    ),
    (
        params_of("recovered", server="gpu", groups=2, situation="silent"),
        (
            "the proxy ended while 2 groups were open on gpu: the server does not "
            "answer, they stay open until it does"
        ),
        "Users without an answer were cut off. Enter opens the groups",
    ),
    (
        params_of("recovered", server="gpu", groups=2, situation="removed"),
        (
            "the proxy ended while 2 groups were open on gpu, which is no longer "
            "configured: the server frees their episodes only at its own time limit"
        ),
        "Users without an answer were cut off. Enter opens the groups",
    ),
    (
        params_of("strays", server="gpu", episodes=1),
        "1 episode on gpu belonged to no group of ours: it was given back",
        "Nothing is left to do",
    ),
    (
        params_of("strays", server="gpu", episodes=2),
        "2 episodes on gpu belonged to no group of ours: they were given back",
        "Nothing is left to do",
    ),
    (
        params_of("waited", rated=1, automatic=1),
        (
            "2 groups waited for a rating when the proxy was stopped: 1 rated in time, "
            "1 sent with the automatic reward"
        ),
        "Enter opens them: each group shows its outcome",
    ),
    (
        params_of("waited", dropped=1),
        ("1 group waited for a rating when the proxy was stopped: 1 given up, nothing was sent"),
        "Enter opens them: each group shows its outcome",
    ),
    (
        params_of("rewards", error="SyntaxError", file="/h/f.py", line=2, kept=True),
        ("the rewards did not load: /h/f.py:2: SyntaxError; the last good version stays active"),
        "Correct the file and save it: it is loaded again at once. 6 shows its fault",
    ),
    (
        params_of("rewards", error="there is none"),
        "the rewards did not load: there is none; groups go to the operator",
        "Correct the file and save it: it is loaded again at once. 6 shows its fault",
    ),
    (
        params_of(
            "rewards_ended", error="the hooks' process ended (exit code 7); it is started again"
        ),
        "the hooks' process ended (exit code 7); it is started again",
        "If it goes on, correct what ends it and save the file; 6 shows the fault",
    ),
    (
        params_of("rewards_gone", path="/h/rewards.yaml"),
        ("the built-in rewards train now: the rewards of the last run are gone, /h/rewards.yaml"),
        ("Restore that file or folder; dismiss this when the built-in rewards are wanted"),
    ),
    (
        params_of("judge", judge="helpful", error="no key", scoring="cache"),
        (
            "the judge helpful is in trouble: no key; groups that its cache does not "
            "answer are not scored meanwhile"
        ),
        (
            "6 shows its counts, e there opens the file; `rewards-enable helpful off` "
            "scores without it"
        ),
    ),
    (
        params_of(
            "judge",
            judge="helpful",
            error="refused",
            file="/h/r.yaml",
            line=3,
            unreached=True,
            scoring="version",
        ),
        (
            "the judge helpful was not reached yet: /h/r.yaml:3: refused; the last good "
            "version stays active"
        ),
        ("It is tried again automatically; `rewards-enable helpful off` scores without it"),
    ),
    (
        params_of("judge", judge="helpful", error="no key"),
        "the judge helpful is in trouble: no key; groups go to the operator",
        (
            "6 shows its counts, e there opens the file; `rewards-enable helpful off` "
            "scores without it"
        ),
    ),
    (
        params_of("unscored", count=3, of=10, error="hook: ValueError", waiting=2),
        (
            "3 of the last 10 groups have no automatic reward and train nothing: hook: "
            "ValueError; 2 open groups wait for you"
        ),
        (
            "Save a corrected version: open groups are re-scored with it (6 shows the "
            "fault). On a group (2): `S` re-scores, `x` aborts, or rate it by hand"
        ),
    ),
    (
        params_of("unscored", count=1, of=1, error="hook: too slow", waiting=1, time_limit=80.0),
        (
            "the last group has no automatic reward and trains nothing: hook: too slow; "
            "1 open group waits for you"
        ),
        (
            "Make it faster, or raise rewards.time_limit (now 80 s) and restart the "
            "proxy. On a group (2): `S` re-scores, `x` aborts, or rate it by hand"
        ),
    ),
    (
        params_of("hook", error="KeyError"),
        "the hook for new requests failed: KeyError",
        "7 shows the traceback; correct the hook and save it",
    ),
    (
        params_of("hook"),
        "the hook for new requests took too long and was left out",
        "7 shows the log; make the hook faster",
    ),
    (
        params_of(
            "hacking",
            trait="length",
            r=0.912,
            low=0.8,
            high=0.95,
            answers=80,
            groups=("g1", "g2"),
            parts=("words",),
        ),
        (
            "rewards follow length, without what the part `words` gives: r +0.91 (95 % "
            "+0.80 to +0.95) over 80 answers"
        ),
        "Look at g1, g2: is the winner better, or just longer? See Rewards (6)",
    ),
    (
        params_of("hacking", trait="refusal", r=0.5, low=0.4, high=0.6, answers=80, groups=("g1",)),
        ("rewards follow phrases of refusal: r +0.50 (95 % +0.40 to +0.60) over 80 answers"),
        "Look at g1: is the winner better, or just a refusal? See Rewards (6)",
    ),
    (
        params_of(
            "hacking",
            trait="reference",
            r=0.9,
            low=0.8,
            high=0.95,
            answers=80,
            parts=("relevance",),
        ),
        (
            "rewards follow overlap with the reference, without what the part `relevance` gives: "
            "r +0.90 (95 % +0.80 to +0.95) over 80 answers"
        ),
        (
            "Look at the winners: is the winner better, or just closer to a copy of the "
            "reference? See Rewards (6)"
        ),
    ),
    (
        params_of("hacking", trait="rhyme", r=0.5, low=0.4, high=0.6, answers=80, parts=("a", "b")),
        (
            "rewards follow rhyme, without what the parts `a`, `b` give: r +0.50 (95 % "
            "+0.40 to +0.60) over 80 answers"
        ),
        ("Look at the winners: is the winner better, or just higher in rhyme? See Rewards (6)"),
    ),
    (
        params_of("dead", dead=29, groups=30, steps=3),
        (
            "29 of the 30 groups of the last 3 global steps have no signal: their "
            "answers got equal or almost equal rewards, from which the policy learns almost nothing"
        ),
        ("6 shows the values of each part: let one tell answers apart, or use harder questions"),
    ),
    (
        params_of("reward_scale", low=-2.0, high=12.0),
        "the rewards go from -2 to 12: they are expected to lie in 0 to 1",
        "Check on Rewards that weights sum to 1 and that hooks return 0 to 1",
    ),
    (
        params_of("reward_scale", low=0.7, high=0.715, narrow=True),
        "all rewards lie between 0.7 and 0.715: they hardly tell answers apart",
        "Check on Rewards that weights sum to 1 and that hooks return 0 to 1",
    ),
    (
        params_of("reward_outlier", group="g9", candidate=4, reward=500.0, deviations=8.25),
        "reward 500 of candidate 4 in group g9 is 8.2 deviations from the others",
        "Open the group: its parts show the cause of that reward",
    ),
    (
        params_of("worse", server="gpu", step=40, below=0.124),
        "the policy of gpu is worse than the baseline by 0.12 at step 40",
        "8 shows what changed; `w` there rewinds",
    ),
    (
        params_of("worse", server="gpu", step=None, below=0.3, best=31, paused=True),
        "the policy of gpu is worse than the baseline by 0.30",
        (
            "8 shows what changed; `w` there rewinds to step 31. Nothing is trained until then; "
            "`r` trains on without it"
        ),
    ),
    (
        params_of("paused", server="gpu", reason="paused by the operator"),
        "training on gpu is paused by the operator",
        "Users are answered, nothing is trained. 8 opens Progress: `r` resumes",
    ),
    (
        params_of("paused", server="gpu", reason="step 40 is worse than the baseline by 0.12"),
        "training on gpu is paused: step 40 is worse than the baseline by 0.12",
        "Users are answered, nothing is trained. 8 opens Progress: `r` resumes",
    ),
    (
        params_of(
            "below_best",
            server="gpu",
            step=146,
            below=0.073,
            least=0.048,
            most=0.097,
            than=86,
            best=86,
        ),
        (
            "the mean reward of gpu at step 146 is 0.07 less (0.05 to 0.10) than at step 86, its "
            "best one"
        ),
        "8 shows what changed; `w` there rewinds to step 86",
    ),
    (
        params_of("below_best", server="gpu", step=None, below=0.3, least=0.2, most=0.4, than=None),
        "the mean reward of gpu is 0.30 less (0.20 to 0.40) than its best verified step",
        "8 shows what changed; `w` there rewinds",
    ),
    (
        params_of("worse_parts", server="gpu", step=146, parts=(RIGHT_FELL,), verdict="better"),
        "gpu: the reward is better, but worse than the baseline: right answers 0.60 to 0.14",
        "8 shows the answers that changed; a part with a weight on 6 makes it count",
    ),
    (
        params_of("worse_parts", server="gpu", step=None, parts=(RIGHT_FELL,), verdict="unknown"),
        "gpu: worse than the baseline: right answers 0.60 to 0.14",
        "8 shows the answers that changed; a part with a weight on 6 makes it count",
    ),
    (
        params_of("port", port=8000, url="http://127.0.0.1:8001"),
        "port 8000 is taken: the fake vLLM listens on http://127.0.0.1:8001",
        (
            "Point applications at http://127.0.0.1:8001/v1. For port 8000: free it, "
            "stop the proxy (Ctrl+Q, then s) and start again"
        ),
    ),
    (
        params_of("journal", error="the disk is full", remedy="Free some space"),
        "the disk is full",
        "Free some space",
    ),
    (
        params_of("journal", effect="untrained"),
        "the journal cannot be written: nothing is trained on",
        "7 shows why",
    ),
    (
        params_of("journal", effect="unsent"),
        "the journal cannot be written: no reward is sent",
        "7 shows why",
    ),
    (
        params_of("journal_file", notice="the journal was deleted"),
        "the journal was deleted",
        "7 shows the cause",
    ),
    (
        params_of("journal_damage", damage="page 7 is damaged"),
        "the journal is damaged: page 7 is damaged",
        "Restart the proxy: the start sets the file aside and keeps what can be read",
    ),
    (
        params_of("journal_prune", error="OSError: no such device"),
        "the journal is not pruned and may exceed its limits: OSError: no such device",
        "It is tried again every minute; 7 shows the cause",
    ),
    (
        params_of("telemetry", name="tensorboard", error="the disk is full"),
        "tensorboard takes no data: the disk is full",
        "Training goes on; data is dropped",
    ),
    (
        params_of("part", part="status of gpu", error="KeyError: 'step'"),
        "a part of the proxy failed and was started again: status of gpu: KeyError: 'step'",
        "A fault of the program; 7 shows its cause",
    ),
    (
        params_of("process", role="engine", detail="ended with exit code 1"),
        "engine ended with exit code 1",
        "Press 5 for its last log lines and to start it again; 7 for its log",
    ),
    (
        params_of(
            "process", role="engine", detail="ended: the port is taken", remedy="Set `engine.port`"
        ),
        "engine ended: the port is taken",
        "Set `engine.port`",
    ),
]
