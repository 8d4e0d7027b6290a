coproc cat
for ((i = 0; i < 12000; i++)); do echo "$i" >&"${COPROC[1]}"; read -r x <&"${COPROC[0]}"; done
