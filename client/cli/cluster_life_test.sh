#!/bin/bash
# Life and death of a local cluster with the real daemons: start, refusal of a second, restart of what is killed, end by `weft down`, by
# Ctrl-C and by kill -9 of `weft up`, each leaving nothing.
set -u
weft="$PWD/client/cli/weft"
tmp="${TEST_TMPDIR:-$(mktemp -d)}"
export XDG_RUNTIME_DIR="$tmp/run"
mkdir -p -m 0700 "$XDG_RUNTIME_DIR"
unset WEFT_ADDRESS WEFT_CLUSTER WEFT_TOKEN_FILE
. tests/shell/checks.sh
pid_of() { "$weft" workers --cluster "$1" --json 2>/dev/null | tr -d ' \n' | sed -n "s/.*\"name\":\"$2\",\"state\":\"alive\",\"device\":\"cpu\",\"pid\":\([0-9]*\).*/\1/p"; }
supervisor_of() { pgrep -f "$weft up .*--name $1\$"; }
children_of() { pgrep -P "$1"; }
# Dead, though perhaps not yet reaped by whoever adopted it.
gone() { [ ! -e "/proc/$1" ] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null; }

# --- start, refusal, restart
"$weft" up --workers 2 --detach --name life || exit 1
[ "$("$weft" workers --cluster life --json | grep -c '"alive"')" = 2 ] || fail "two workers should be alive"
said="$("$weft" up --workers 1 --detach --name life 2>&1)" && fail "a second cluster of the name started"
echo "$said" | grep -q 'running already' || fail "the refusal says: $said"
w1="$(pid_of life w1)"
kill -9 "$w1"
within 5 '[ -n "$(pid_of life w1)" ] && [ "$(pid_of life w1)" != "$w1" ]' || fail "w1 did not come back"
[ -n "$(pid_of life w0)" ] || fail "w0 should have stayed"
driver="$(pgrep -f "weft-driver .*$XDG_RUNTIME_DIR/weft/life")"
kill -9 "$driver"
within 10 '[ "$("$weft" workers --cluster life --json 2>/dev/null | grep -c "\"alive\"")" = 2 ]' || fail "the cluster did not recover from its driver's death"
up="$(supervisor_of life)"
pids="$up $(children_of "$up")"
[ "$(echo $pids | wc -w)" = 4 ] || fail "supervisor, driver and two workers expected, found: $pids"
"$weft" down --name life || fail "down"
for p in $pids; do gone "$p" || fail "process $p outlived down"; done
[ ! -e "$XDG_RUNTIME_DIR/weft" ] || fail "files are left: $(find "$XDG_RUNTIME_DIR/weft")"
"$weft" down --name life | grep -q 'is not running' || fail "down of nothing"

# --- Ctrl-C
"$weft" up --workers 2 --name front > "$tmp/front" 2>&1 &
up=$!
within 20 'grep -q "is ready" "$tmp/front"' || fail "the cluster in the foreground did not start: $(cat "$tmp/front")"
pids="$(children_of "$up")"
[ "$(echo $pids | wc -w)" = 3 ] || fail "three children expected: $pids"
kill -INT "$up"
wait "$up"
code=$?
[ "$code" = 0 ] || fail "Ctrl-C of a ready cluster ended with code $code"
for p in $pids; do gone "$p" || fail "process $p outlived Ctrl-C"; done
[ ! -e "$XDG_RUNTIME_DIR/weft" ] || fail "files are left after Ctrl-C"

# --- kill -9 of the supervisor: children die with it, and the next start works
"$weft" up --workers 2 --detach --name killed || fail "start"
up="$(supervisor_of killed)"
pids="$(children_of "$up")"
kill -9 $up
for p in $pids; do within 2 "gone $p" || fail "process $p outlived its supervisor"; done
"$weft" workers --cluster killed 2> "$tmp/err"
[ $? = 4 ] || fail "a dead cluster should be unreachable"
grep -q 'killed' "$tmp/err" || fail "message: $(cat "$tmp/err")"
"$weft" up --workers 1 --detach --name killed || fail "start after kill -9"
"$weft" down --name killed || fail "down"
[ ! -e "$XDG_RUNTIME_DIR/weft" ] || fail "files are left at the end"
[ -z "$(find /dev/shm -newer "$0" -name '*weft*' 2>/dev/null)" ] || fail "/dev/shm: $(ls /dev/shm)"

# --- graphs: exit codes
"$weft" up --workers 1 --detach --name codes || fail "start"
export WEFT_CLUSTER=codes
cat > "$tmp/good.textproto" <<'G'
name: "good"
actor { name: "a" class: "std.Delay" worker: "w0" config { duration_s: 0.001 dtype: F32 shape: "[2]" } }
node { name: "n" actor: "a" }
output { name: "y" node: "n" }
G
sed 's/duration_s: 0.001/duration_s: 30/;s/"good"/"slow"/' "$tmp/good.textproto" > "$tmp/slow.textproto"
sed 's/std.Delay/std.Fail/;s/duration_s: 0.001/fail_on: 1 message: "chosen"/;s/"good"/"fails"/' "$tmp/good.textproto" > "$tmp/fails.textproto"
sed 's/actor: "a"/actor: "b"/;s/"good"/"bad"/' "$tmp/good.textproto" > "$tmp/bad.textproto"
expect() {
  local want=$1
  shift
  "$weft" "$@" > "$tmp/out" 2> "$tmp/err"
  local got=$?
  [ "$got" = "$want" ] || fail "weft $*: exit code $got instead of $want: $(cat "$tmp/err")"
}
expect 0 run "$tmp/good.textproto" --repeat 3
expect 2 --json frob
grep -q '"exit_code": 2' "$tmp/out" || fail "usage errors in JSON: $(cat "$tmp/out")"
expect 2 run "$tmp"
expect 1 run "$tmp/fails.textproto" --repeat 3
grep -q 'chosen' "$tmp/err" || fail "the task's message is missing: $(cat "$tmp/err")"
expect 2 run "$tmp/absent.textproto"
expect 3 run "$tmp/bad.textproto"
expect 3 execute good
grep -q "weft graphs" "$tmp/err" || fail "an unknown graph: $(cat "$tmp/err")"
expect 4 workers --address 127.0.0.1:1
expect 5 run "$tmp/slow.textproto" --deadline 0.5
"$weft" run "$tmp/slow.textproto" > "$tmp/out" 2>&1 &
run=$!
within 10 '"$weft" graphs | grep -q "slow.*ready"' || fail "slow is not ready: $("$weft" graphs)"
kill -INT $run
within 12 "gone $run" || fail "run does not end on Ctrl-C"
wait $run
[ $? = 130 ] || fail "interrupted run should end with 130"

# --- a worker that is stopped: told once, in a pipe as well, with its process and with the graph's stall; and what is done is there at once
sed 's/duration_s: 0.001/duration_s: 0.05/;s/"good"/"stuck"/' "$tmp/good.textproto" > "$tmp/stuck.textproto"
echo 'options { progress_timeout_s: 5 }' >> "$tmp/stuck.textproto"
w0="$(pid_of codes w0)"
"$weft" run "$tmp/stuck.textproto" --repeat 100 > "$tmp/out" 2> "$tmp/err" &
run=$!
within 10 'grep -q "^execution 3" "$tmp/out"' || fail "executions are not printed as they come: $(cat "$tmp/out" "$tmp/err")"
kill -STOP "$w0"
within 20 'grep -q "worker w0 (pid $w0) is unresponsive" "$tmp/err"' || fail "a stopped worker is not told: $(cat "$tmp/err")"
within 20 'grep -q "graph \"stuck\" is stalled: nothing has moved" "$tmp/err"' || fail "a stalled graph is not told: $(cat "$tmp/err")"
"$weft" graphs | grep -q 'stuck.*ready, stalled' || fail "graphs: $("$weft" graphs)"
"$weft" graphs --json | grep -q '"stalled": "nothing has moved' || fail "graphs --json: $("$weft" graphs --json)"
"$weft" inspect > "$tmp/inspected" || fail "inspect"
grep -q 'is stalled: nothing has moved' "$tmp/inspected" || fail "inspect: $(cat "$tmp/inspected")"
grep -q "^worker w0 (pid $w0): .*kill -CONT $w0" "$tmp/inspected" || fail "inspect of a stopped worker: $(cat "$tmp/inspected")"
"$weft" inspect --json | grep -q '"stalled": "nothing has moved' || fail "inspect --json"
kill -CONT "$w0"
wait $run
[ $? = 0 ] || fail "the run does not end well once its worker goes on: $(cat "$tmp/err")"
[ "$(grep -c 'is unresponsive' "$tmp/err")" = 1 ] && [ "$(grep -c 'is stalled' "$tmp/err")" = 1 ] || fail "told more than once: $(cat "$tmp/err")"

expect 0 compile "$tmp/good.textproto"
expect 3 compile "$tmp/good.textproto"
expect 0 execute good --repeat 5
expect 0 inspect good
expect 0 trace good -o "$tmp/t.svg"
expect 0 trace good -o "$tmp/t.json"
expect 0 teardown good
expect 3 teardown good
"$weft" down || fail "down"
unset WEFT_CLUSTER

# --- a cluster with a join token, which also may listen beyond loopback
echo "a-secret" > "$tmp/token"
echo "another" > "$tmp/wrong"
expect 4 up --workers 1 --detach --name guarded --listen 0.0.0.0:0
expect 0 up --workers 1 --detach --name guarded --listen 0.0.0.0:0 --token-file "$tmp/token"
expect 4 workers --cluster guarded
grep -q 'token-file' "$tmp/err" || fail "a missing token: $(cat "$tmp/err")"
expect 4 workers --cluster guarded --token-file "$tmp/wrong"
expect 2 workers --cluster guarded --token-file "$tmp/nothing"
WEFT_TOKEN_FILE="$tmp/token" expect 0 run "$tmp/good.textproto" --repeat 3 --cluster guarded
expect 0 graphs --cluster guarded --token-file "$tmp/token"
expect 0 down --name guarded
[ "$failures" = 0 ] || exit 1
