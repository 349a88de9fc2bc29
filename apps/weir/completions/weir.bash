# SPDX-License-Identifier: Apache-2.0
# Completion of weir in bash.

# The options of a subcommand; those that take a value end in "=".
_weir_options() {
    case $1 in
    bench) echo "--color= --help --json --seconds= --threads=" ;;
    check) echo "--color= --help --json --keys= --quiet" ;;
    demo) echo "--color= --fleet --help --json --seconds=" ;;
    doctor) echo "--color= --help --json --policies= --prefix= --redis=" ;;
    explain) echo "--color= --cost= --fleet-secret-file= --help --json --keys= --policies= --prefix= --redis= --status=" ;;
    override) echo "--by= --color= --help --json --keys= --policies= --prefix= --redis= --until=" ;;
    reset) echo "--color= --dry-run --fleet-secret-file= --help --json --keys= --policies= --prefix= --redis=" ;;
    simulate)
        echo "--against= --color= --cost= --decisions= --fields= --format= --help --json --key= --kinds= --late= --max-keys= --nodes= --plot= \
            --policies= --policy= --port= --through= --to= --top="
        ;;
    top) echo "--color= --help --interval= --json --once --prefix= --redis= --sample= --status" ;;
    esac
}

_weir() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} subcommand=${COMP_WORDS[1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "bench check demo doctor explain override reset simulate top help --help --version" -- "$word"))
        return
    fi
    # bash takes "=" for a word of its own.
    if [ "$before" = "=" ]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    elif [ "$word" = "=" ]; then
        word=
    fi
    case $subcommand/$before in
    help/*)
        COMPREPLY=($(compgen -W "bench check demo doctor explain override reset simulate top" -- "$word"))
        return
        ;;
    */--color)
        COMPREPLY=($(compgen -W "auto always never" -- "$word"))
        return
        ;;
    check/--keys | override/--keys)
        COMPREPLY=($(compgen -W "gateway bytes" -- "$word"))
        return
        ;;
    */--keys)
        COMPREPLY=($(compgen -W "bytes addresses addresses/64 addresses/56 addresses/48" -- "$word"))
        return
        ;;
    */--prefix | */--redis | */--cost | */--status | */--by | */--until) return ;;
    bench/--seconds | demo/--seconds | bench/--threads | top/--interval | top/--sample) return ;;
    simulate/--cost)
        COMPREPLY=($(compgen -W "1 bytes" -- "$word"))
        return
        ;;
    simulate/--format | simulate/-f)
        COMPREPLY=($(compgen -W "auto common combined json haproxy alb w3c csv pcap" -- "$word"))
        return
        ;;
    simulate/--key | simulate/-k)
        COMPREPLY=($(compgen -W "address address/24 address/64 address/24,64 all gateway user path path:2 header:user-agent header:referer field:" -- "$word"))
        return
        ;;
    simulate/--fields | simulate/--late | simulate/--max-keys | simulate/--nodes | simulate/-n | simulate/--policy | \
        simulate/--port | simulate/--through | simulate/--to | simulate/--top) return ;;
    override/override)
        case $word in
        -*) ;;
        *)
            COMPREPLY=($(compgen -W "list log rm set" -- "$word"))
            return
            ;;
        esac
        ;;
    esac
    case $word in
    -*)
        COMPREPLY=($(compgen -W "$(_weir_options "$subcommand")" -- "$word"))
        case ${COMPREPLY[*]} in
        *=) compopt -o nospace 2>/dev/null ;;
        esac
        ;;
    *)
        # Operands of the others are no files.
        case $subcommand/$before in
        check/* | simulate/* | */--policies | */--fleet-secret-file) ;;
        *) return 0 ;;
        esac
        compopt -o filenames 2>/dev/null
        local file
        while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$word")
        ;;
    esac
}

complete -F _weir weir
