-- SPDX-License-Identifier: Apache-2.0
-- Adds new units to a record that holds plain numbers, without reading the record. Statements within a loop, not a
-- function (counts.lua says why).
--
-- Reads    key, own, author, at (the growth of the author's count is the argument at + 2); told: the author's count
-- Sets     added: the sum over all authors, now, if the units are new, and both fields are plain numbers; else false
--
-- HINCRBY answers what its field holds after it. If the author's field then holds `told`, it held the count before the
-- growth, so the report is neither repeated nor late. Else both fields are set back, and the report is merged.
local growth_text = ARGV[at + 2]
added = pcall('HINCRBY', key, 'sum', growth_text)
if type(added) == 'number' then
    local own_count = pcall('HINCRBY', own, author, growth_text)
    if own_count ~= told or added < told then
        set_back(key, 'sum', growth_text)
        if type(own_count) == 'number' then
            set_back(own, author, growth_text)
        end
        added = false
    end
else
    added = false
end
