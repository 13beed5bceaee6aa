# quantized_files.sh - quantized_files.py in small, on the CPU: each file is written, loaded, timed and checked, and a wrong output is noticed.
. "$(dirname "$0")/expect.sh"

# The first interpreter that has numpy: packages of the system do not reach one that is installed beside it.
for python in python3 /usr/bin/python3 none; do
    ! "$python" -c "import numpy" 2>/dev/null || break
done
[ "$python" != none ] || { echo "no python3 with numpy"; exit 77; }
export PYTHONPATH=$PWD/../bindings/python/src:$PWD PYTHONDONTWRITEBYTECODE=1
: "${MOE_LIBRARY:?the library}"
small="--small --device cpu --tokens 1,32"

for file in q4_k_m gptq awq; do
    expect_text "as it should be" "$python" quantized_files.py $small --files "$file"
    grep -q "^$file: " "$folder/stdout" || fail "$file is not named: $(cat "$folder/stdout")"
done
expect_text "layers: 2" "$python" quantized_files.py $small --files gptq --layers 2 --folder "$folder/kept"
expect_text "int4" "$moe" inspect "$folder/kept/gptq"
expect_failure 2 "--files has gguf" "$python" quantized_files.py --files gguf

# changed.py CHANGE: the program with one thing changed.
cat >"$folder/changed.py" <<'END'
import sys

import numpy
import quantized_files as program

change = sys.argv.pop(1)
right = program.Loaded.forward
if change == "zeros":
    program.Loaded.forward = lambda self, x, layer: right(self, x, layer) * numpy.uint16(0)
elif change == "another token":
    program.Loaded.forward = lambda self, x, layer: right(self, x[:, ::-1].copy(), layer)
elif change == "no number":
    program.Loaded.forward = lambda self, x, layer: right(self, x, layer) | numpy.uint16(0x7FFF)
elif change == "wrong scale":
    program.Loaded.forward = lambda self, x, layer: program.to_bf16(program.to_f32(right(self, x, layer)) * numpy.float32(1.05))
program.main()
END
for change in zeros "another token" "no number" "wrong scale"; do
    status=0
    "$python" "$folder/changed.py" "$change" $small --files awq >"$folder/stdout" || status=$?
    [ "$status" -eq 1 ] || fail "exit code $status with $change: $(cat "$folder/stdout")"
    grep -q "FAILED: more than 0.01" "$folder/stdout" || fail "$change is not noticed: $(cat "$folder/stdout")"
    echo "as it should: $change: $(grep check "$folder/stdout")"
done
expect_text "as it should be" "$python" "$folder/changed.py" nothing $small --files awq
