#!/bin/bash
# What a worker that its driver refuses says, and that it ends: the wrong token, none, and a name that a live worker has.
set -u
driver_bin="$PWD/driver/serve/weft-driver"
worker_bin="$PWD/worker/weft-worker"
tmp="${TEST_TMPDIR:-$(mktemp -d)}"
unset WEFT_ADDRESS WEFT_CLUSTER WEFT_TOKEN_FILE
. tests/shell/checks.sh
trap 'kill -KILL $(jobs -p) 2> /dev/null; wait' EXIT

(umask 077; echo "right-token-of-this-test" > "$tmp/token"; echo "another-token-altogether" > "$tmp/other")
"$driver_bin" --listen 127.0.0.1:0 --state-dir "$tmp/state" --address-file "$tmp/address" --token-file "$tmp/token" > "$tmp/driver.log" 2>&1 &
within 20 '[ -s "$tmp/address" ]' || { cat "$tmp/driver.log"; exit 1; }
address="$(awk '{print $1}' "$tmp/address")"

refused() { # NAME SECONDS WORDS ARGS...: ends by itself within so long, saying the words
  local name="$1" seconds="$2" words="$3" code
  shift 3
  timeout "$seconds" "$worker_bin" --driver "$address" "$@" > "$tmp/$name.log" 2>&1
  code=$?
  [ "$code" != 124 ] || fail "$name: it dials for ever"
  [ "$code" != 0 ] || fail "$name: it ended as if all were well"
  grep -q "$words" "$tmp/$name.log" || fail "$name says: $(cat "$tmp/$name.log")"
}
refused no-token 20 "asks for a join token" --name w1
refused wrong-token 20 "the join token is not this driver's" --name w1 --token-file "$tmp/other"
grep -q "refused .*join token" "$tmp/driver.log" || fail "the driver's log says: $(cat "$tmp/driver.log")"

for wrong in x 127.0.0.1:notaport 127.0.0.1:0 :7370 http://localhost:7370; do
  said="$(timeout 20 "$worker_bin" --driver "$wrong" 2>&1)"
  code=$?
  [ "$code" = 2 ] && echo "$said" | grep -q "is not host:port" || fail "--driver $wrong: code $code, $said"
done

"$worker_bin" --driver "$address" --name w0 --token-file "$tmp/token" > "$tmp/w0.log" 2>&1 &
within 20 'grep -q "registered as w0" "$tmp/w0.log"' || fail "w0 says: $(cat "$tmp/w0.log")"
# It may be w0 come back before its former end was noticed, so it tries for 15 s.
refused taken 40 "does not take this worker: .*w0" --name w0 --token-file "$tmp/token"

[ "$failures" = 0 ] && echo "All tests passed (1 test case)"
exit "$failures"
