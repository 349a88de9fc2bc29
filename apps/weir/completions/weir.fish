# SPDX-License-Identifier: Apache-2.0
# Completion of weir in fish.

complete -c weir -f
complete -c weir -n __fish_use_subcommand -a bench -d 'How long a check takes on this machine'
complete -c weir -n __fish_use_subcommand -a check -d 'Whether policy files are good, and what they admit'
complete -c weir -n __fish_use_subcommand -a demo -d 'A gateway under live traffic, on this machine'
complete -c weir -n __fish_use_subcommand -a doctor -d 'Whether Redis is fit for weir, and what to do'
complete -c weir -n __fish_use_subcommand -a explain -d 'Where a key stands in the fleet, and why it is denied'
complete -c weir -n __fish_use_subcommand -a override -d 'List and change the limits of single keys, in Redis'
complete -c weir -n __fish_use_subcommand -a reset -d 'Make a key as if never used, on all nodes'
complete -c weir -n __fish_use_subcommand -a simulate -d 'What a policy would have done to the requests of a log'
complete -c weir -n __fish_use_subcommand -a top -d 'What the nodes do now: rates, denials, sync health'
complete -c weir -n __fish_use_subcommand -a help -d 'What a subcommand does'
complete -c weir -n __fish_use_subcommand -s h -l help -d 'The subcommands'
complete -c weir -n __fish_use_subcommand -l version -d 'The versions of program and library'
complete -c weir -n '__fish_seen_subcommand_from help' -a 'bench check demo doctor explain override reset simulate top'

# Every subcommand
complete -c weir -n '__fish_seen_subcommand_from bench check demo doctor explain override reset simulate top' -s h -l help -d 'A short help'
complete -c weir -n '__fish_seen_subcommand_from bench check demo doctor explain override reset simulate top' -l json -d 'One line of JSON'
complete -c weir -n '__fish_seen_subcommand_from bench check demo doctor explain override reset simulate top' -l color -x -a 'auto always never' -d Colours

complete -c weir -n '__fish_seen_subcommand_from check' -F
complete -c weir -n '__fish_seen_subcommand_from check' -l keys -x -a 'gateway bytes' -d 'What the keys of overrides are'
complete -c weir -n '__fish_seen_subcommand_from check' -s q -l quiet -d 'Nothing but what is wrong'

complete -c weir -n '__fish_seen_subcommand_from doctor' -l policies -r -F -d 'The policy file of the nodes'
complete -c weir -n '__fish_seen_subcommand_from doctor' -l prefix -x -d 'Of every key in Redis'
complete -c weir -n '__fish_seen_subcommand_from doctor' -l redis -x -d 'Where Redis is'

complete -c weir -n '__fish_seen_subcommand_from explain' -l cost -x -d 'Of the request'
complete -c weir -n '__fish_seen_subcommand_from explain' -l fleet-secret-file -r -F -d 'The secret of the nodes'
complete -c weir -n '__fish_seen_subcommand_from explain' -l keys -x -a 'bytes addresses addresses/64 addresses/56 addresses/48' -d 'What keys are'
complete -c weir -n '__fish_seen_subcommand_from explain' -l policies -r -F -d 'The policy file of the nodes'
complete -c weir -n '__fish_seen_subcommand_from explain' -l prefix -x -d 'Of every key in Redis'
complete -c weir -n '__fish_seen_subcommand_from explain' -l redis -x -d 'Where Redis is'
complete -c weir -n '__fish_seen_subcommand_from explain' -l status -x -d 'Nodes with metrics'

complete -c weir -n '__fish_seen_subcommand_from override; and not __fish_seen_subcommand_from list log rm set' -a 'list log rm set'
complete -c weir -n '__fish_seen_subcommand_from override' -l by -x -d 'Who changes'
complete -c weir -n '__fish_seen_subcommand_from override' -l keys -x -a 'gateway bytes' -d 'What keys are'
complete -c weir -n '__fish_seen_subcommand_from override' -l until -x -d 'When it ends'
complete -c weir -n '__fish_seen_subcommand_from override' -l policies -r -F -d 'The policy file of the nodes'
complete -c weir -n '__fish_seen_subcommand_from override' -l prefix -x -d 'Of every key in Redis'
complete -c weir -n '__fish_seen_subcommand_from override' -l redis -x -d 'Where Redis is'

complete -c weir -n '__fish_seen_subcommand_from reset' -s n -l dry-run -d 'Change nothing'
complete -c weir -n '__fish_seen_subcommand_from reset' -l fleet-secret-file -r -F -d 'The secret of the nodes'
complete -c weir -n '__fish_seen_subcommand_from reset' -l keys -x -a 'bytes addresses addresses/64 addresses/56 addresses/48' -d 'What keys are'
complete -c weir -n '__fish_seen_subcommand_from reset' -l policies -r -F -d 'The policy file of the nodes'
complete -c weir -n '__fish_seen_subcommand_from reset' -l prefix -x -d 'Of every key in Redis'
complete -c weir -n '__fish_seen_subcommand_from reset' -l redis -x -d 'Where Redis is'
complete -c weir -n '__fish_seen_subcommand_from simulate' -F
complete -c weir -n '__fish_seen_subcommand_from simulate' -s a -l against -r -F -d 'The present policies'
complete -c weir -n '__fish_seen_subcommand_from simulate' -l cost -x -a '1 bytes' -d 'The units of a request'
complete -c weir -n '__fish_seen_subcommand_from simulate' -l decisions -r -F -d 'Every decision'
complete -c weir -n '__fish_seen_subcommand_from simulate' -l fields -x -d 'Names in JSON'
complete -c weir -n '__fish_seen_subcommand_from simulate' -s f -l format -x -a 'auto common combined json haproxy alb w3c csv pcap' -d 'Of the traces'
complete -c weir -n '__fish_seen_subcommand_from simulate' -s k -l key -x -a 'address address/24 address/64 address/24,64 all gateway user path path:2 header:user-agent header:referer field:' -d 'What is limited'
complete -c weir -n '__fish_seen_subcommand_from simulate' -l kinds -r -F -d 'Of packets, for the gateway'
complete -c weir -n '__fish_seen_subcommand_from simulate' -l late -x -d 'Lines that come so late are put in order'
complete -c weir -n '__fish_seen_subcommand_from simulate' -l max-keys -x -d 'Keys that are counted exactly'
complete -c weir -n '__fish_seen_subcommand_from simulate' -s n -l nodes -x -d 'Of a fleet'
complete -c weir -n '__fish_seen_subcommand_from simulate' -l plot -r -F -d 'Draw it'
complete -c weir -n '__fish_seen_subcommand_from simulate' -s p -l policies -r -F -d 'The policies to try'
complete -c weir -n '__fish_seen_subcommand_from simulate' -l policy -x -d 'Which of them'
complete -c weir -n '__fish_seen_subcommand_from simulate' -l port -x -d 'Of captures, where requests go'
complete -c weir -n '__fish_seen_subcommand_from simulate' -l through -x -d 'What a limit lets through'
complete -c weir -n '__fish_seen_subcommand_from simulate' -l to -x -d 'Of captures, where requests go'
complete -c weir -n '__fish_seen_subcommand_from simulate' -l top -x -d 'Keys that are listed'
complete -c weir -n '__fish_seen_subcommand_from top' -s i -l interval -x -d 'Seconds between readings'
complete -c weir -n '__fish_seen_subcommand_from top' -s 1 -l once -d 'Two readings, printed once'
complete -c weir -n '__fish_seen_subcommand_from top' -l prefix -x -d 'Of every key in Redis'
complete -c weir -n '__fish_seen_subcommand_from top' -l redis -x -d 'Where Redis is'
complete -c weir -n '__fish_seen_subcommand_from top' -l sample -x -d 'Names read from Redis each time'
complete -c weir -n '__fish_seen_subcommand_from top' -l status -d 'The arguments are addresses of nodes'

complete -c weir -n '__fish_seen_subcommand_from bench' -l seconds -x -d 'For all measurements together'
complete -c weir -n '__fish_seen_subcommand_from bench' -l threads -x -d 'The several threads'

complete -c weir -n '__fish_seen_subcommand_from demo' -l fleet -d 'Three gateways and a Redis'
complete -c weir -n '__fish_seen_subcommand_from demo' -l seconds -x -d 'How long'
