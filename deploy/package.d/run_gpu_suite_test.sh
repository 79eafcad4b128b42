#!/bin/bash
# run-gpu-suite over programs that are made up: its table, its limits, and that nothing is left running, also after a signal.
set -u
suite="${1:-deploy/package.d/run-gpu-suite}"
tmp="$(mktemp -d)"
trap 'rm -rf "$tmp"' EXIT
. tests/shell/checks.sh
# Not ended, and no zombie that whoever adopted it has not reaped yet.
lives() { [ -e "/proc/$1" ] && ! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null; }

mkdir -p "$tmp/p/bin" "$tmp/path"
cp "$suite" "$tmp/p/"
cp "$(dirname "$suite")/run-cases" "$tmp/p/bin/"
cat > "$tmp/p/bin/weft" <<'S'
#!/bin/sh
[ -z "${NO_GPU:-}" ] || { echo '  "gpus": 0,'; exit 1; }
case "$*" in *--json*) echo "  \"gpus\": ${GPUS:-1}," ;; *) echo "all is well" ;; esac
S
export STUB_DIR="$tmp"
cat > "$tmp/p/bin/weft-tests" <<'S'
#!/bin/sh
case "$1" in
  "[gpu]") [ "$WEFT_TEST_GPUS" = 1 ] && echo "All tests passed (7 assertions in 3 test cases)" ;;
  "gpu daemons: *") printf 'gpu daemons: one\ngpu daemons: two, "quoted"\ngpu daemons: three\n'; exit 3 ;;
  "gpu daemons: none*") ;;
  "gpu daemons: "*)
    echo "pipe $CUDA_MPS_PIPE_DIRECTORY" > "$STUB_DIR/pipe"
    # Back from a specification of names: a comma that is no name's own ends one.
    echo "$1" | sed 's/\([^\]\),gpu/\1\ngpu/g; s/\\\(.\)/\1/g' > "$TMPDIR/names"
    cat "$TMPDIR/names" >> "$STUB_DIR/ran"
    echo "$TMPDIR" >> "$STUB_DIR/dirs"
    n="$(wc -l < "$TMPDIR/names")"
    if [ -n "${ALL_PASS:-}" ]; then echo "All tests passed ($n assertions in $n test cases)"; exit 0; fi
    if grep -q two "$TMPDIR/names"; then kill -9 $$; fi
    echo "test cases: 2 | 1 passed | 1 failed"; exit 1 ;;
esac
S
cat > "$tmp/p/bin/weft-gpu-bench" <<S
#!/bin/sh
case "\$*" in
  latency) echo "RESULT a copy | 5 us | <= 6 us | ok"; echo "RESULT a launch | 9 us | <= 8 us | no" ;;
  copies) sleep 1000 & echo \$! > "$tmp/left" ;;
  "overlap --transport shm") exec sleep 1000 ;;
esac
S
# CUDA MPS: a control daemon that runs until it is told to quit.
cat > "$tmp/path/nvidia-cuda-mps-control" <<S
#!/bin/sh
if [ "\${1:-}" = -d ]; then
  cp /bin/sleep "$tmp/path/nvidia-cuda-mps-server"
  "$tmp/path/nvidia-cuda-mps-server" 1000 > /dev/null 2>&1 &
  echo \$! > "$tmp/mps"
  exit 0
fi
read -r word && [ "\$word" = quit ] && kill "\$(cat "$tmp/mps")"
S
chmod +x "$tmp"/p/bin/* "$tmp"/path/*
# Limits of this test's seconds, not of minutes.
sed -i 's/part overlap-shm 30 /part overlap-shm 1 /' "$tmp/p/run-gpu-suite"
unset OUT CUDA_MPS_PIPE_DIRECTORY
export PATH="$tmp/path:/usr/bin:/bin"

"$tmp/p/run-gpu-suite" --out "$tmp/out" > "$tmp/said" 2>&1
[ $? = 1 ] || fail "parts failed, so the code should be 1"
expect() { grep -qE "$1" "$tmp/said" || fail "no line \"$1\" in: $(cat "$tmp/said")"; }
expect '^doctor \| exit code 0, [0-9.]+ s \| nothing fails \| ok$'
expect '^gpu-tests \| All tests passed \(7 assertions in 3 test cases\), [0-9.]+ s \| all cases pass \| ok$'
expect '^a copy \| 5 us \| <= 6 us \| ok$'
expect '^a launch \| 9 us \| <= 8 us \| no$'
expect '^copies \| left 1 processes running \| none is left \| no$'
expect '^overlap-shm \| did not end within 1 s, .* \| no$'
# One process was killed: the case that it had counts as failed.
expect '^integration \| test cases: 3 \| 1 passed \| 2 failed, .*integration.log \| all cases pass \| no$'
[ "$(sort "$tmp/ran" | tr '\n' ';')" = 'gpu daemons: one;gpu daemons: three;gpu daemons: two, "quoted";' ] || fail "these cases ran: $(cat "$tmp/ran")"
[ "$(sort -u "$tmp/dirs" | wc -l)" = 2 ] || fail "processes share a temporary directory"
while read -r dir; do [ ! -e "$dir" ] || fail "$dir is left"; done < "$tmp/dirs"
expect '^run-gpu-suite: [0-9]+ s, 4 not ok$'
grep -qF 'latency |' "$tmp/said" && fail "a part with rows of its own needs none"
[ "$(sed -n 's/^pipe //p' "$tmp/pipe")" != "" ] || fail "the part did not run under MPS"
lives "$(cat "$tmp/left")" && fail "what a part left is running"
lives "$(cat "$tmp/mps")" && fail "MPS is running"
[ -e "$(sed -n 's/^pipe //p' "$tmp/pipe")" ] && fail "the pipe directory is left"

ALL_PASS=1 "$tmp/p/bin/run-cases" 8 "gpu daemons: *" > "$tmp/said" 2>&1 || fail "run-cases: $(cat "$tmp/said")"
expect '^All tests passed \(3 assertions in 3 test cases\)$'
"$tmp/p/bin/run-cases" 2 "gpu daemons: none*" > "$tmp/said" 2>&1
[ $? = 2 ] || fail "no case should be code 2"
"$tmp/p/bin/run-cases" two "gpu daemons: *" > /dev/null 2>&1
[ $? = 2 ] || fail "\"two\" is no number of processes"

"$tmp/p/run-gpu-suite" --out "$tmp/out" --only doctor,gpu-tests > "$tmp/said" 2>&1 || fail "--only: $(cat "$tmp/said")"
expect '^run-gpu-suite: [0-9]+ s, 0 not ok$'
grep -q copies "$tmp/said" && fail "--only runs more"
"$tmp/p/run-gpu-suite" --list | grep -qE '^(random|kill):' && fail "the long parts are wanted only with --long"
[ "$("$tmp/p/run-gpu-suite" --list --long | grep -cE '^(random|kill):')" = 2 ] || fail "--long lists no long parts"

# Several GPUs: the other set, which --set also chooses; --only takes parts of both, each once.
GPUS=2 "$tmp/p/run-gpu-suite" --out "$tmp/out" > "$tmp/said" 2>&1
expect '^run-gpu-suite: 2 GPU.*, set multi,'
expect '^edges-nccl \| exit code 0, '
expect '^pipeline-shared \| exit code 0, '
expect '^integration \| '
grep -qE '^(gpu-tests|latency) \|' "$tmp/said" && fail "the set multi runs parts of base"
[ "$("$tmp/p/run-gpu-suite" --list --set multi | grep -cE '^(edges-nccl|edges-ipc|kill-nccl|kill-ipc|integration):')" = 5 ] || fail "--set multi lists too little"
"$tmp/p/run-gpu-suite" --list | grep -q '^edges' && fail "without a GPU the set is base"
"$tmp/p/run-gpu-suite" --set other > /dev/null 2>&1 && fail "there is no set \"other\""
GPUS=2 "$tmp/p/run-gpu-suite" --out "$tmp/out" --only edges-ipc,doctor,integration > "$tmp/said" 2>&1
expect '^edges-ipc \| '
expect '^doctor \| '
[ "$(grep -c '^integration |' "$tmp/said")" = 1 ] || fail "a part of both sets should run once: $(cat "$tmp/said")"

# A signal: everything ends with it, MPS too.
cat > "$tmp/p/bin/weft-tests" <<S
#!/bin/sh
[ "\$1" != "gpu daemons: *" ] || { echo "gpu daemons: one"; exit 1; }
[ "\$1" != "gpu daemons: one" ] || { echo \$\$ > "$tmp/running"; exec sleep 1000; }
S
"$tmp/p/run-gpu-suite" --out "$tmp/out" --only integration > "$tmp/said" 2>&1 &
pid=$!
within 20 '[ -s "$tmp/running" ]' || fail "the part does not start: $(cat "$tmp/said")"
kill -TERM "$pid"
within 20 '! lives "$pid"' || fail "it does not end on SIGTERM"
lives "$(cat "$tmp/running")" && fail "the part outlives it"
lives "$(cat "$tmp/mps")" && fail "MPS outlives it"

NO_GPU=1 "$tmp/p/run-gpu-suite" --out "$tmp/out" > "$tmp/said" 2>&1 && fail "without a GPU it should fail"
expect 'no GPU can be used here'
[ "$failures" = 0 ] || exit 1
echo "all is as it should be"
