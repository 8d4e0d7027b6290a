#!/usr/bin/env bash
# A software bill of materials of the product, as CycloneDX JSON on stdout: every crate that is linked into `gleaner`,
# with version, licence and checksum, as Cargo.lock has them; and what is linked in that is no crate.
#
#   scripts/sbom.sh [TARGET] >gleaner.cdx.json
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${1:-$(rustc -vV | sed -n 's/^host: //p')}
version=$(cargo pkgid --package gleaner | sed 's/.*[#@]//')
checksums=$(awk -F'"' '/^name/ { name = $2 } /^version/ { version = $2 } /^checksum/ { print name "\t" version "\t" $2 }' Cargo.lock)

cargo tree --locked --package gleaner --target "$target" --edges normal --prefix none --no-dedupe --format '{p}	{l}	{r}' |
    sed 's/ ([^)]*)//' | sort -u |
    jq --raw-input --slurp --arg version "$version" --arg target "$target" --arg checksums "$checksums" '
        ($checksums | split("\n") | map(split("\t") | {key: "\(.[0])@\(.[1])", value: .[2]}) | from_entries) as $sums
        | split("\n") | map(select(. != "") | split("\t") | {crate: (.[0] | split(" ")), licence: .[1], url: .[2]}
            | {name: .crate[0], version: (.crate[1] | ltrimstr("v")), licence, url})
        | map(select(.name != "gleaner")) as $crates
        | {
            bomFormat: "CycloneDX", specVersion: "1.5", version: 1,
            metadata: {component: {
                type: "application", name: "gleaner", version: $version, "bom-ref": "gleaner",
                licenses: [{expression: "Apache-2.0"}], properties: [{name: "target", value: $target}]
            }},
            components: (($crates | map(
                {type: "library", name, version, "bom-ref": "pkg:cargo/\(.name)@\(.version)"}
                + if .licence == "" then {} else {licenses: [{expression: (.licence | gsub("/"; " OR "))}]} end
                + if $sums["\(.name)@\(.version)"] then {
                      purl: "pkg:cargo/\(.name)@\(.version)",
                      hashes: [{alg: "SHA-256", content: $sums["\(.name)@\(.version)"]}]
                  } else {} end
                + if .url == "" then {} else {externalReferences: [{type: "vcs", url}]} end
            )) + ($native | map({type: "library", name: .name, "bom-ref": .name, licenses: [{expression: .licence}]})))
        }' --argjson native '[
            {"name": "glibc", "licence": "LGPL-2.1-or-later"},
            {"name": "libbpf", "licence": "LGPL-2.1-only OR BSD-2-Clause"},
            {"name": "libelf", "licence": "GPL-2.0-or-later OR LGPL-3.0-or-later"},
            {"name": "zlib", "licence": "Zlib"}
        ]'
