-- SPDX-License-Identifier: Apache-2.0
-- Reports of buckets: every author's counts, their sums (counts.lua), and the time at which the bucket is full again.
--
-- KEYS     one record each
-- ARGV     the time, and for each record: author, count, demand, refunds, reset (0: none), units that a reset keeps,
--          acked count, acked refunds, known refunds, tat, from, moves (0: all new units move the bucket; else fewer than
--          so many, from now on and not beyond the time given as `from`), unit, milliseconds that the record lives after
--          the bucket is full. The time, reset, tat and from are microseconds of fleet time; unit is picoseconds
-- Returns  for each record: status (0, or 1: refused), the author's count, sum of what was admitted, sum of demand, the
--          author's refunds, sum of refunds, tat
--
-- tat is the theoretical arrival time: the time at which the bucket is full again. It is never earlier than the tat
-- that the author has seen, less the units that were refunded since (known refunds). From there it moves by the new
-- units: those that neither this record nor, if an earlier record was lost, that earlier record has had (acked count,
-- acked refunds).
--
-- The tat that the author has seen is without the units above its acked count. If an answer was lost, this record has
-- had some of these units already. They are added to the tat that the author has seen: then an earlier report of them
-- makes no difference. A tat of 0 says nothing.
--
-- An author whose acked count is larger than its count here has seen a record that was lost. Each author saw the lost
-- record at another time, and has had units since. So tat begins at the latest one that any of them saw, and each
-- author's new units are added to it, in whatever order the authors report.
--
-- `from` is the time up to which every node has reported all of its use. The bucket may have been full at that time,
-- but not since, because units used since may be reported in any order.
--
-- Where the rate differs from the last report's rate, the units that are owed stay. A reset fills the bucket once,
-- except for what its author has used since.
--
-- Fields: AUTHOR and sum as in counts.lua, and
--   tat      the time at which the bucket is full again, microseconds of fleet time
--   unit     picoseconds that a unit takes, by the last report
--   base     of a lost record: the latest tat of it that an author has seen, and the time of the first such report
--
-- The record's time to live is set when tat enters another stretch of time, which is half of what the record lives after
-- the bucket is full. So a busy bucket's time to live is not set with every report, and is at most one such stretch too
-- short.
-- include common.lua
-- include counts.lua
local ANSWERS = 7 -- numbers in the answer of each record
local REPAIR_US = 10000000 -- authors report a lost record within this time; their interval is much shorter
local LATEST_US = 280000000000000 -- tat is at most some nine years ahead: nodes count no further, and PEXPIRE has an end
local at = 1
-- Numbers that most reports of a batch have in common, with the texts that they were converted from.
local from_text, from_us, unit_text, unit_ps, life_text, life_ms, stretch_us
local now_us = ARGV[1] + 0

-- The tat of a bucket whose record was lost, after an author has reported the tat that it has seen.
local function repair(key, tat, old_tat, seen)
    local base, since = match(call('HGET', key, 'base') or '', '^(%d+) (%d+)$')
    if not base or now_us - since > REPAIR_US then
        base, since = old_tat, now_us
    end
    if seen > base + 0 then
        tat = tat + seen - base
        call('HSET', key, 'base', format(TWO, seen, since))
    end
    return tat
end

local renewed = now_us % #KEYS + 1 -- the record whose time to live this batch sets in any case
for i = 1, #KEYS do
    local key, author = KEYS[i], ARGV[at + 1]
    local record = pcall('HMGET', key, author, 'sum', 'tat', 'unit')
    if record.err then
        -- include counts_refused.lua
    else
        -- include counts_merge.lua
        if ARGV[at + 11] ~= from_text then
            from_text = ARGV[at + 11]
            from_us = tonumber(from_text)
        end
        if ARGV[at + 13] ~= unit_text then
            unit_text = ARGV[at + 13]
            unit_ps = tonumber(unit_text)
        end
        if ARGV[at + 14] ~= life_text then
            life_text = ARGV[at + 14]
            life_ms = tonumber(life_text)
            stretch_us = life_ms * 500
        end
        local old_tat = tonumber(record[3] or 0) or 0
        if not (old_tat >= 0 and old_tat <= MOST) then
            old_tat = 0 -- weir did not write it
        end
        local tat = old_tat
        if record[4] and record[4] ~= unit_text and tat > now_us then
            local old_unit_ps = tonumber(record[4]) or 0
            if old_unit_ps > 0 then
                tat = now_us + ceil((tat - now_us) / old_unit_ps * unit_ps)
            end
        end
        local seen = ARGV[at + 10] + 0
        -- Units that are new to the bucket, and whether the author has seen a record that was lost.
        local new, lost = more, false
        if more > 0 and ARGV[at + 7] ~= record[1] then
            local acked = ARGV[at + 7] + 0
            acked = acked < MOST and acked or wrap(acked)
            lost = growth(old_count, acked) > 0
            if lost then
                new = growth(acked, count)
            elseif acked ~= old_count and seen > 0 then
                seen = seen + ceil(growth(acked, old_count) * unit_ps / 1000000)
            end
        end
        if seen > tat and old_sum_refunds > 0 then
            seen = seen - ceil(growth(ARGV[at + 9] + 0, old_sum_refunds) * unit_ps / 1000000)
        end
        if lost then
            tat = repair(key, tat, old_tat, seen)
        elseif seen > tat then
            tat = seen
        end
        local since_us, most_us = from_us, nil
        if ARGV[at + 12] ~= '0' then
            new = min(new, ARGV[at + 12] - 1)
            since_us, most_us = now_us, max(tat, from_us)
        end
        if new > 0 then
            local new_us = new * unit_ps / 1000000
            local fraction = new_us % 1 -- rounded up, and without a call
            tat = (tat > since_us and tat or since_us) + (fraction > 0 and new_us - fraction + 1 or new_us)
            tat = most_us and min(tat, most_us) or tat
        end
        if more_refunds > 0 then
            local acked = ARGV[at + 8] + 0
            local refunded = growth(old_refunds, acked) > 0 and growth(acked, refunds) or more_refunds
            if refunded > 0 then
                tat = max(tat - ceil(refunded * unit_ps / 1000000), 0)
            end
        end
        if tat > now_us + LATEST_US then
            tat = now_us + LATEST_US
        end
        if reset > old_reset then
            local kept = ARGV[at + 6] + 0
            local owed = max(ceil((tat - now_us) * 1000000 / unit_ps) - kept, 0)
            owed = min(owed, max(sum - kept, 0))
            refunds, sum_refunds, sum = add(refunds, owed), add(sum_refunds, owed), sum - owed
            tat = kept > 0 and now_us + ceil(kept * unit_ps / 1000000) or 0
        else
            reset = old_reset
        end
        if tat ~= old_tat or count ~= old_count or demand ~= old_demand or refunds ~= old_refunds or
            reset ~= old_reset or record[4] ~= unit_text or not record[2] then
            -- include counts_write.lua
            if record[4] == unit_text then
                call('HSET', key, author, own, 'sum', total, 'tat', format(ONE, tat))
            else
                call('HSET', key, author, own, 'sum', total, 'tat', format(ONE, tat), 'unit', unit_text)
            end
        end
        if tat <= now_us or i == renewed or tat - tat % stretch_us ~= old_tat - old_tat % stretch_us then
            local full_ms = max(ceil((tat - now_us) / 1000), 0)
            local ttl_ms = format(ONE, full_ms + life_ms)
            -- include expire.lua
        end
        -- include counts_answer.lua
        out[to + 7] = tat
    end
    at, to = at + 14, to + ANSWERS
end
return out
