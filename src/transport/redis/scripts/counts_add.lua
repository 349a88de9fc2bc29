-- SPDX-License-Identifier: Apache-2.0
-- Adds new units to a record that holds plain numbers, without reading the record. Statements within a loop, not
-- functions (counts.lua says why).
--
-- Reads    key, author, at (the growth of the author's count is the argument at + 2); count: the author's count
-- Sets     sum: of all authors, now; added: true if the units are new, and both fields are plain numbers
--
-- HINCRBY answers what its field holds after it. If the author's field then holds `count`, it held the count before the
-- growth, so the report is neither repeated nor late. Else both fields are set back, and the report is merged.
local growth_text = ARGV[at + 2]
local sum = pcall('HINCRBY', key, 'sum', growth_text)
local added = false
if type(sum) == 'number' then
    local own = pcall('HINCRBY', key, author, growth_text)
    added = own == count and sum >= count
    if not added then
        call('HINCRBY', key, 'sum', '-' .. growth_text)
        if type(own) == 'number' then
            call('HINCRBY', key, author, '-' .. growth_text)
        end
    end
end
