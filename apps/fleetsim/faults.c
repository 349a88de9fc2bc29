/* SPDX-License-Identifier: Apache-2.0 */
/* Faults: when they begin, and what ends them. */
#include <errno.h>

#include "inside.h"

static bool lasts(enum sim_fault_kind kind)
{
    return sim_fault_cuts(kind) || kind == SIM_HANG || kind == SIM_DOWN || kind == SIM_REFUSE || kind == SIM_SLOW;
}

static void cut(struct sim *sim, const struct sim_fault *fault, bool on)
{
    for (unsigned i = fault->first; i <= fault->last; i++) {
        struct sim_node *node = &sim->nodes[i];
        node->cut = fault->kind == SIM_CUT ? on : node->cut;
        if (node->alive) {
            (fault->kind == SIM_CUT    ? loopback_transport_set_cut
             : fault->kind == SIM_DEAF ? loopback_transport_set_deaf
                                       : loopback_transport_set_stuck)(node->transport, on);
        }
    }
}

/* A node leaves: no request comes to it any more, and it reports its units first. */
static void leave(struct sim *sim, unsigned i)
{
    struct sim_node *node = &sim->nodes[i];
    (void) fleet_wait_begin(node->w->fleet); /* as a weir_sync that waits until then */
    node->w->fleet->leaves = true;
    node->leaving = true;
    node->due_ns = 0;
}

static void begin(struct sim *sim, size_t at)
{
    const struct sim_fault *fault = &sim->faults[at];
    switch (fault->kind) {
    case SIM_CUT:
    case SIM_DEAF:
    case SIM_STUCK:
        cut(sim, fault, true);
        break;
    case SIM_HANG:
        loopback_fleet_set_hung(sim->fleet, true);
        break;
    case SIM_DOWN:
        loopback_fleet_set_down(sim->fleet, true);
        break;
    case SIM_REFUSE:
        loopback_fleet_refuse(sim->fleet, ":", -EPROTO);
        break;
    case SIM_SLOW:
        loopback_fleet_set_slow(sim->fleet, (uint64_t) fault->by_ns);
        break;
    case SIM_EMPTY:
        loopback_fleet_forget(sim->fleet);
        sim->forgot = true;
        ledger_note_dead(sim, NULL);
        break;
    case SIM_FLUSH:
        loopback_fleet_flush(sim->fleet);
        sim->forgot = true;
        ledger_note_dead(sim, NULL);
        break;
    case SIM_BEHIND:
    case SIM_ROLLBACK:
        (void) loopback_fleet_restore(sim->fleet, sim->snapshots[at], fault->kind == SIM_ROLLBACK);
        sim->forgot = true;
        ledger_note_dead(sim, NULL);
        break;
    case SIM_FLEET_CLOCK:
        sim->fleet_wrong_ns += fault->by_ns;
        break;
    case SIM_KILL:
    case SIM_LEAVE:
        for (unsigned i = fault->first; i <= fault->last; i++) {
            if (sim->nodes[i].alive && fault->kind == SIM_KILL) {
                sim_node_kill(sim, i);
            } else if (sim->nodes[i].alive) {
                leave(sim, i);
            }
        }
        break;
    case SIM_JOIN:
        for (unsigned i = fault->first; i <= fault->last; i++) {
            weir_error error;
            if (!sim->nodes[i].was_here) {
                (void) sim_node_open(sim, i, &error);
            }
        }
        break;
    case SIM_CLOCK:
    default:
        break;
    }
}

static void end(struct sim *sim, const struct sim_fault *fault)
{
    switch (fault->kind) {
    case SIM_CUT:
    case SIM_DEAF:
    case SIM_STUCK:
        cut(sim, fault, false);
        break;
    case SIM_HANG:
        loopback_fleet_set_hung(sim->fleet, false);
        break;
    case SIM_DOWN:
        loopback_fleet_set_down(sim->fleet, false);
        break;
    case SIM_REFUSE:
        loopback_fleet_refuse(sim->fleet, NULL, 0);
        break;
    case SIM_SLOW:
        loopback_fleet_set_slow(sim->fleet, 0);
        break;
    default:
        break;
    }
}

/* Whether every living node has had a good round since the faults were over. */
static void look_for_recovery(struct sim *sim)
{
    if (sim->last_fault_ns == 0 || sim->recovered || sim->now_ns < sim->last_fault_ns) {
        return;
    }
    bool all = true;
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        struct sim_node *node = &sim->nodes[i];
        if (!node->alive) {
            continue;
        }
        const uint64_t syncs = load_relaxed(&node->w->fleet->stats.sync_count);
        if (node->syncs_at_fault == UINT64_MAX) {
            node->syncs_at_fault = syncs;
        }
        all = all && syncs > node->syncs_at_fault;
    }
    sim->recovered = all;
    sim->recovered_ns = sim->now_ns;
}

void faults_run(struct sim *sim)
{
    for (size_t i = 0; i < sim->options.fault_count; i++) {
        const struct sim_fault *fault = &sim->faults[i];
        const bool snaps = fault->kind == SIM_BEHIND || fault->kind == SIM_ROLLBACK;
        if (snaps && sim->snapshots[i] == NULL && sim->now_ns + fault->behind_ns >= sim->traffic_ns + fault->from_ns) {
            sim->snapshots[i] = loopback_fleet_snapshot(sim->fleet);
        }
        if (!sim->begun[i] && sim->now_ns >= sim->traffic_ns + fault->from_ns) {
            sim->begun[i] = true;
            begin(sim, i);
        }
        if (lasts(fault->kind) && !sim->ended[i] && sim->now_ns >= sim->traffic_ns + fault->until_ns) {
            sim->ended[i] = true;
            end(sim, fault);
        }
    }
    look_for_recovery(sim);
}

void faults_end(struct sim *sim)
{
    for (size_t i = 0; i < sim->options.fault_count; i++) {
        if (sim->begun[i] && !sim->ended[i]) {
            end(sim, &sim->faults[i]);
        }
        sim->begun[i] = sim->ended[i] = true;
    }
    const struct loopback_link none = {0};
    for (unsigned i = 0; i < sim->options.nodes; i++) {
        if (sim->nodes[i].alive) {
            loopback_transport_set_link(sim->nodes[i].transport, &none);
        }
    }
}
