-- SPDX-License-Identifier: Apache-2.0
-- The counts of a record: each author's own, and their sums. Included by report_window.lua and report_bucket.lua.
--
-- An author's counts are what it admitted (count), what it was asked for (demand) and what was given back to it
-- (refunds). They are cumulative and never decrease. The larger of the old value and the reported one is kept, so a
-- report that arrives twice or late changes nothing.
--
-- Fields of a record, in the fewest numbers that say it, since most reports are of keys that nobody was denied:
--   AUTHOR   "count", "count demand" or "count demand refunds reset"; demand is count where it is left out, and the
--            others are 0
--   sum      "net", "net demand" or "net demand refunds"; net is what counts: admitted less refunded
--
-- Cost: first the calls of Redis, then conversions and new strings (bench/redis_cost.py, docs/decisions/019). So new
-- units of a record with plain numbers take two calls that convert nothing (counts_add.lua), and all else two calls for
-- a record that exists. What is done for every record stands in files of statements, counts_add.lua, counts_merge.lua,
-- counts_write.lua, counts_answer.lua and counts_refused.lua. As functions they would take 5 to 16 percent more
-- instructions per report.

-- The largest number below 2^63. HINCRBY counts exactly up to there; a count that is read above 2^53 is rounded to the
-- 16th digit.
local END = 9223372036854774784
-- %d takes half the time of %.0f, and is exact where the server's `long` has 64 bits.
local ONE = format('%d', MOST) == '9007199254740992' and '%d' or '%.0f'
local TWO = ONE .. ' ' .. ONE
local THREE, FOUR = TWO .. ' ' .. ONE, TWO .. ' ' .. TWO

-- The numbers of a field that is no plain number. A field that weir did not write counts as zeros.
local function parse(field)
    local count, demand, refunds, reset = match(field, '^(%d+) (%d+)$') -- mostly; it takes a quarter less
    if count then
        count, demand = count + 0, demand + 0
        if count > END then
            return 0, 0, 0, 0
        end
        return count, demand > END and count or demand, 0, 0
    end
    count, demand, refunds, reset = match(field, '^(%-?%d+) (%d+) (%d+) ?(%d*)$')
    count, demand, refunds, reset = tonumber(count) or 0, tonumber(demand) or 0, tonumber(refunds) or 0, tonumber(reset) or 0
    if count + refunds < 0 or count > END or refunds > END then
        return 0, 0, 0, 0
    end
    return count, demand > END and count or demand, refunds, reset > MOST and 0 or reset
end

-- The numbers of a text in the form that struct has for one of `times` like ones.
local function numbers_of(form, times, text)
    return {struct.unpack('<' .. string.rep(form, times), text)}
end

local records = #KEYS
local merged, from = numbers_of('d', #ARGV[3] / 8, ARGV[3]), 0 -- of the reports that are merged; those before a record's
local out, to = {}, 0 -- the answer, and how many numbers it has
