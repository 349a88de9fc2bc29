/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of weir.hpp, each used as a program uses it. Compiled as C++17, as C++20 and without exceptions. Prints
 * TAP.
 *
 * Guards: include/weir/weir.hpp
 */
#include <weir/weir.hpp>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <netinet/in.h>
#include <new>
#include <set>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace std::chrono_literals;

namespace
{

std::atomic<std::size_t> allocations{0};
int failures = 0;

void expect(bool good, const char *what, int line)
{
    if (!good) {
        failures++;
        std::printf("# line %d: %s\n", line, what);
    }
}

#define EXPECT(condition) expect(static_cast<bool>(condition), #condition, __LINE__)

[[maybe_unused]] void did_not_throw(int line)
{
    expect(false, "the call before this line throws", line);
}

/* Time that moves when a test says so, and only in limiter::poll. */
struct virtual_time {
    std::chrono::nanoseconds now = 1000s;

    weirpp::host_clock clock()
    {
        return {[this] { return now; }, [this] { return 1700000000s + now; }};
    }
};

void move_on(weirpp::limiter &limiter, virtual_time &time, std::chrono::nanoseconds by)
{
    weirpp::error why;
    time.now += by;
    limiter.poll(why);
    EXPECT(!why);
}

weirpp::limiter open_limiter(const weirpp::options &how)
{
    weirpp::error why;
    weirpp::limiter limiter = weirpp::limiter::open(how, why);
    if (!limiter) {
        std::printf("Bail out! %s\n", why.what());
        std::exit(EXIT_FAILURE);
    }
    EXPECT(!why && !why.code());
    return limiter;
}

weirpp::limiter open_with(virtual_time &time, const std::vector<weirpp::policy> &policies)
{
    weirpp::options how;
    how.clock = time.clock();
    how.max_keys = 1000;
    weirpp::limiter limiter = open_limiter(how);
    weirpp::error why;
    EXPECT(limiter.set_policies(policies, why));
    EXPECT(!why);
    return limiter;
}

/* Ten units that do not come back for an hour. */
const std::vector<weirpp::policy> ten = {{"ten", {weirpp::limit::fixed_window(10, 1h)}}};

template <class T>
constexpr bool moves_only = !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
                            std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>;
static_assert(moves_only<weirpp::limiter> && moves_only<weirpp::handle>);
static_assert(sizeof(weirpp::handle) == sizeof(::weir_thread *), "a handle is the pointer");
static_assert(sizeof(weirpp::verdict) == sizeof(::weir_verdict), "a verdict is the struct");
static_assert(std::is_trivially_default_constructible_v<weirpp::verdict>, "a check need not clear the verdict first");
static_assert(std::is_trivially_copyable_v<weirpp::verdict> && std::is_trivially_copyable_v<weirpp::key>);
static_assert(std::is_nothrow_copy_constructible_v<weirpp::error>, "as an exception must be");
static_assert(std::is_aggregate_v<weirpp::limit> && std::is_aggregate_v<weirpp::policy> &&
              std::is_aggregate_v<weirpp::options>);
static_assert(noexcept(std::declval<weirpp::handle &>().check(std::declval<const weirpp::key &>())));
static_assert(weirpp::duration_of(UINT64_MAX) == weirpp::never && weirpp::duration_of(5) == 5ns);
static_assert(weirpp::burst_words(0) == 0 && weirpp::burst_words(64) == 1 && weirpp::burst_words(65) == 2);

/* Whether limiter::make_key takes such bytes. */
template <class Bytes, class = void> constexpr bool makes_key = false;
template <class Bytes>
constexpr bool makes_key<Bytes, std::void_t<decltype(std::declval<const weirpp::limiter &>().make_key(
                                    weirpp::policy_id(), std::declval<Bytes>()))>> = true;
static_assert(makes_key<std::string_view> && makes_key<const char *> && makes_key<std::string &> &&
              makes_key<const std::string &>);
static_assert(!makes_key<std::string>, "a key of a string that is gone");

void values_of_errors()
{
    const weirpp::error none;
    EXPECT(!none && none.what()[0] == '\0' && !none.code());
    weirpp::options how;
    how.max_keys = 5;
    weirpp::error why;
    EXPECT(!weirpp::limiter::open(how, why));
    EXPECT(why && why.code() == std::errc::invalid_argument);
    EXPECT(std::strstr(why.what(), "max_keys is 5") != nullptr);
    how.max_keys = 0;
    how.sync_interval = -5ms;
    EXPECT(!weirpp::limiter::open(how, why) && std::strstr(why.what(), "sync_interval_ms") != nullptr);
    how.sync_interval = std::chrono::milliseconds((std::int64_t(1) << 32) + 50); /* 50 in 32 bits */
    EXPECT(!weirpp::limiter::open(how, why));
    how.sync_interval = 0ms;
    how.fleet_secret = std::string("0123456789abcdef\0and more", 25);
    EXPECT(!weirpp::limiter::open(how, why) && why.code() == std::errc::invalid_argument);
    EXPECT(std::strstr(why.what(), "fleet_secret has a zero byte") != nullptr);
    how.fleet_secret.clear();
    how.clock.wall = [] { return 0ns; };
    EXPECT(!weirpp::limiter::open(how, why) && std::strstr(why.what(), "monotonic_ns") != nullptr);
    how.clock.wall = nullptr;
    how.max_keys = 1000;
    weirpp::limiter limiter = weirpp::limiter::open(how, why);
    EXPECT(limiter && !why && why.what()[0] == '\0');
    EXPECT(!limiter.set_policies({{"api", {}}}, why) && std::strstr(why.what(), "\"api\"") != nullptr);
    EXPECT(!limiter.set_policies({{std::string("a\0b", 3), {weirpp::limit::token_bucket(1, 1s)}}}, why));
    EXPECT(std::strstr(why.what(), "zero byte") != nullptr);
    EXPECT(!limiter.set_policies({{"api", {weirpp::limit::token_bucket(1, -1s)}}}, why));
    EXPECT(!limiter.load_policies("/nowhere/at/all.yaml", why) && why.code() == std::errc::no_such_file_or_directory);
    EXPECT(!limiter.set_override("api:key", "deny", why) && why);
    EXPECT(!limiter.remove_override("api:key", why) && why);
    EXPECT(limiter.poll(why) == 0ms && why.code() == std::errc::invalid_argument);
    EXPECT(limiter.poll_fd(why) == -1 && std::strstr(why.what(), "no_thread") != nullptr);
    EXPECT(!limiter.join(why) && why.code() == std::errc::invalid_argument);
    EXPECT(weirpp::limiter::unlink("no name") == std::errc::invalid_argument);
    EXPECT(limiter.find_policy("api") == weirpp::no_policy);
}

void exceptions()
{
#if WEIRPP_EXCEPTIONS
    weirpp::options how;
    how.max_threads = 1000000;
    try {
        static_cast<void>(weirpp::limiter::open(how));
        did_not_throw(__LINE__);
    } catch (const std::exception &problem) {
        EXPECT(std::strstr(problem.what(), "max_threads is 1000000") != nullptr);
    }
    weirpp::limiter limiter = weirpp::limiter::open();
    const std::vector<std::function<void()>> wrong = {
        [&] { limiter.join(); },
        [&] {
            limiter.set_policies({{"", {}}});
        },
        [&] { limiter.load_policies("/nowhere/at/all.yaml"); },
        [&] { limiter.load_policies("/nowhere/at/all.yaml", {}); },
        [&] { limiter.set_key_form("no name", nullptr); },
        [&] { limiter.set_override("api:key", "deny"); },
        [&] { limiter.remove_override("api:key"); },
        [&] { limiter.poll(); },
        [&] { static_cast<void>(limiter.poll_fd()); },
    };
    for (const auto &call : wrong) {
        try {
            call();
            did_not_throw(__LINE__);
        } catch (const weirpp::error &problem) {
            EXPECT(problem && problem.what()[0] != '\0' && problem.code());
        }
    }
    limiter.set_policies(ten);
    limiter.set_key_form("ten", weirpp::address_form());
    limiter.set_override("ten:198.51.100.7", "deny");
    limiter.remove_override("ten:198.51.100.7");
    /* What a callable of the program throws passes through the library's lists. */
    int calls = 0;
    limiter.set_policies({{"a", ten[0].limits}, {"b", ten[0].limits}});
    try {
        limiter.list_policies([&](const weirpp::policy_info &) {
            calls++;
            throw std::runtime_error("enough");
        });
        did_not_throw(__LINE__);
    } catch (const std::runtime_error &) {
        EXPECT(calls == 1);
    }
    EXPECT(limiter.list_policies([](const weirpp::policy_info &) {}) == 2);
    how = {};
    how.no_thread = true;
    limiter = weirpp::limiter::open(how);
    EXPECT(limiter.poll() >= 0ms && limiter.poll_fd() >= 0);
#endif
}

void limits_and_policies()
{
    virtual_time time;
    weirpp::policy api = {"api",
                          {weirpp::limit::token_bucket(100, 1s, 20), weirpp::limit::fixed_window(5000, 1h),
                           weirpp::limit::quota(100000, weirpp::calendar::month)}};
    api.limits[1].name = "hourly";
    api.mode = weirpp::mode::shadow;
    api.scope = weirpp::scope::process;
    api.hash_keys = true;
    api.on_outage = weirpp::outage::local;
    api.on_long_outage = weirpp::outage::closed;
    api.outage_grace = 2s;
    api.long_outage = 1h;
    weirpp::limiter limiter = open_with(time, {api,
                                               {"queue", {weirpp::limit::leaky_bucket(10, 1s, 5, 2)}},
                                               {"slide", {weirpp::limit::sliding_window(7, 1min)}},
                                               {"log", {weirpp::limit::sliding_log(9, 1min)}}});
    std::vector<weirpp::policy> listed;
    const auto keep = [&](const weirpp::policy_info &info) {
        listed.push_back(weirpp::policy::copy_of(*info.policy));
        EXPECT(info.id != weirpp::no_policy);
    };
    EXPECT(limiter.list_policies(keep) == 4 && listed.size() == 4);
    const weirpp::policy &got = listed[0];
    EXPECT(got.name == "api" && got.limits.size() == 3 && got.mode == weirpp::mode::shadow);
    EXPECT(got.scope == weirpp::scope::process && got.hash_keys && got.on_outage == weirpp::outage::local);
    EXPECT(got.on_long_outage == weirpp::outage::closed && got.outage_grace == 2s && got.long_outage == 1h);
    EXPECT(got.limits[0].algorithm == weirpp::algorithm::token_bucket && got.limits[0].units == 100);
    EXPECT(got.limits[0].period == 1s && got.limits[0].burst == 20 && !got.limits[0].name.empty());
    EXPECT(got.limits[1].name == "hourly" && got.limits[1].period == 1h);
    EXPECT(got.limits[2].calendar == weirpp::calendar::month && got.limits[2].units == 100000);
    EXPECT(listed[1].limits[0].algorithm == weirpp::algorithm::leaky_bucket && listed[1].limits[0].delay == 2);
    EXPECT(listed[2].limits[0].algorithm == weirpp::algorithm::sliding_window);
    EXPECT(listed[3].limits[0].algorithm == weirpp::algorithm::sliding_log);
    weirpp::error why;
    EXPECT(limiter.set_policies(listed, why));
#if defined(__cpp_designated_initializers) && __cplusplus >= 202002L
    EXPECT(limiter.set_policies(
        {{.name = "api",
          .limits = {{.algorithm = weirpp::algorithm::token_bucket, .units = 3, .period = 1s, .burst = 2}},
          .scope = weirpp::scope::process}},
        why));
    const weirpp::options how{.prefix = "p", .max_keys = 1000, .no_thread = true, .clock = time.clock()};
    EXPECT(weirpp::limiter::open(how, why));
#endif
}

void checks()
{
    virtual_time time;
    weirpp::limiter limiter = open_with(time, {{"api", {weirpp::limit::token_bucket(10, 1s, 5)}}});
    weirpp::handle handle = limiter.attach();
    EXPECT(static_cast<bool>(handle) && handle.get() != nullptr);
    const std::string address = "198.51.100.7";
    const weirpp::key key = limiter.make_key(limiter.find_policy("api"), address);
    EXPECT(key.data == address.data() && key.length == address.size());
    EXPECT(limiter.make_key(key.policy, address.data(), address.size()).hash == key.hash);
    EXPECT(limiter.make_key(key.policy, "198.51.100.7").hash == key.hash);

    weirpp::verdict verdict;
    handle.prefetch(key);
    EXPECT(handle.check(key, verdict) && verdict && verdict.allowed() && !verdict.would_deny());
    EXPECT(verdict.limit() == 5 && verdict.remaining() == 4 && verdict.basis() == weirpp::basis::process);
    EXPECT(verdict.retry_after() == 0ns && verdict.fleet_age() == weirpp::never);
    EXPECT(verdict.limit_index() == 0 && verdict.key_index() == 0);
    EXPECT(verdict.reset_after() > 99ms && verdict.reset_after() < 101ms);
    EXPECT(verdict.decided_at().time_since_epoch() == std::chrono::nanoseconds(verdict.get()->decided_ns));
    EXPECT(verdict.decided_at() > std::chrono::system_clock::time_point());
    EXPECT(handle.check(key, 3, verdict) && verdict.remaining() == 1);
    EXPECT(handle.check(key) && !handle.check(key) && !handle.check(key, 2));
    EXPECT(!handle.check(key, verdict) && !verdict && verdict.retry_after() > 98ms && verdict.retry_after() < 101ms);
    EXPECT(!handle.check(key, 6, verdict) && verdict.retry_after() == weirpp::never);
    EXPECT(!handle.peek(key) && !handle.peek(key, 1, verdict) && !handle.peek(key, verdict));
    move_on(limiter, time, 105ms);
    EXPECT(handle.peek(key) && handle.check(key) && !handle.check(key));
    handle.refund(key);
    EXPECT(handle.check(key));
    move_on(limiter, time, 10s);
    handle.charge(key, 7);
    EXPECT(!handle.check(key, verdict) && verdict.retry_after() > 250ms);
    EXPECT(!limiter.reset(key) && handle.check(key, 5));

    limiter.count_unlimited(3);
    EXPECT(limiter.get_stats().unlimited_count == 3);

    weirpp::error why;
    weirpp::verdict never_again;
    const std::string outlaw = "198.51.100.8";
    EXPECT(limiter.set_override("api:" + outlaw, "deny", why));
    EXPECT(!handle.check(limiter.make_key(key.policy, outlaw), never_again));
    EXPECT(never_again.reset_after() == weirpp::never && never_again.retry_after() == weirpp::never);
    EXPECT(limiter.write_headers(weirpp::header_style::x_unix, key.policy, never_again).find("Reset") ==
           std::string::npos);

    const std::string text = limiter.write_headers(weirpp::header_style::draft_11, key.policy, verdict);
    EXPECT(text.find("RateLimit-Policy:") == 0 && text.find("Retry-After: 1\r\n") != std::string::npos);
    char cut[8];
    EXPECT(limiter.write_headers(weirpp::header_style::draft_11, key.policy, verdict, cut, sizeof(cut)) ==
           static_cast<int>(text.size()));
    EXPECT(std::strlen(cut) == sizeof(cut) - 1);
    EXPECT(limiter.write_headers(weirpp::header_style::retry_after, weirpp::no_policy, verdict).empty());
}

void reservations()
{
    virtual_time time;
    weirpp::limiter limiter = open_with(time, {{"queue", {weirpp::limit::leaky_bucket(10, 1s, 3)}}});
    weirpp::handle handle = limiter.attach();
    const weirpp::key key = limiter.make_key(limiter.find_policy("queue"));
    EXPECT(key.length == 0);
    const weirpp::reservation first = handle.reserve(key, 1, 1s);
    EXPECT(first && first.allowed && first.wait == 0ns);
    const weirpp::reservation second = handle.reserve(key, 1, weirpp::never);
    EXPECT(second && second.wait > 90ms && second.wait <= 100ms);
    EXPECT(!handle.reserve(key, 1, -1s));
    const weirpp::reservation refused = handle.reserve(key, 1, 1ms);
    EXPECT(!refused && refused.wait > 1ms);
    EXPECT(handle.reserve(key, 4, 1h).wait == weirpp::never);
}

void bursts()
{
    virtual_time time;
    weirpp::limiter limiter = open_with(time, {{"a", ten[0].limits}, {"b", {weirpp::limit::fixed_window(3, 1h)}}});
    weirpp::handle handle = limiter.attach();
    const weirpp::policy_id a = limiter.find_policy("a"), b = limiter.find_policy("b");
    const std::vector<weirpp::key> keys(70, limiter.make_key(a, "burst"));
    std::array<std::uint64_t, 2> bits = {UINT64_MAX, UINT64_MAX};
    static_assert(weirpp::burst_words(70) == 2);
    EXPECT(handle.check_burst(keys.data(), nullptr, keys.size(), bits.data()) == 10);
    for (std::size_t i = 0; i < keys.size(); i++) {
        EXPECT(weirpp::is_allowed(bits.data(), i) == (i < 10));
    }
    const std::array<weirpp::key, 4> pairs = {limiter.make_key(a, "1"), limiter.make_key(b, "1"),
                                              limiter.make_key(a, "2"), limiter.make_key(b, "1")};
    const std::array<std::uint64_t, 4> costs = {1, 2, 1, 2};
    EXPECT(handle.check_all_burst(pairs.data(), 2, 2, costs.data(), bits.data()) == 1 && bits[0] == 1);
    weirpp::verdict verdict;
    EXPECT(handle.check_all(pairs.data(), nullptr, 2));
    EXPECT(!handle.check_all(pairs.data(), nullptr, 2, verdict) && verdict.key_index() == 1);
#if defined(__cpp_lib_span)
    const std::array<weirpp::key, 4> fresh = {limiter.make_key(a, "5"), limiter.make_key(b, "5"),
                                              limiter.make_key(a, "6"), limiter.make_key(b, "6")};
    EXPECT(handle.check_all(fresh) && handle.check_all(fresh, verdict) && handle.check_all(fresh, {}, verdict));
    EXPECT(!handle.check_all(fresh) && !handle.check_all(fresh, costs, verdict));
    EXPECT(handle.check_all(std::span(fresh).first(1), std::span(costs).first(1)));
    /* A mistake: fewer costs than keys. Nothing is read beyond them, and nothing counted. */
    const weirpp::key unused[] = {limiter.make_key(a, "7"), limiter.make_key(a, "8")};
    EXPECT(!handle.check_all(unused, std::span(costs).first(1), verdict) && verdict.retry_after() == weirpp::never);
    EXPECT(handle.peek(unused[0], verdict) && verdict.remaining() == 10);
    EXPECT(handle.check_burst(unused, {}, {}) == 2);
    EXPECT(handle.check_burst(unused, costs, bits) == 2 && bits[0] == 3);
    EXPECT(handle.check_burst(unused, std::span(costs).first(1), bits) == 1 && bits[0] == 1);
    const std::vector<weirpp::key> many(70, limiter.make_key(a, "many"));
    bits = {0, 77};
    EXPECT(handle.check_burst(many, {}, std::span(bits).first(1)) == 10 && bits[0] == 1023 && bits[1] == 77);
    const std::array<weirpp::key, 4> others = {limiter.make_key(a, "9"), limiter.make_key(b, "9"),
                                               limiter.make_key(a, "9"), limiter.make_key(b, "9")};
    EXPECT(handle.check_all_burst(others, 2, {}, bits) == 2 && bits[0] == 3);
    EXPECT(handle.check_all_burst(others, 2, std::span(costs).first(3), {}) == 0); /* one request, and no room for it */
    EXPECT(handle.check_all_burst(others, 0, {}, bits) == 0);
    EXPECT(handle.check_all_burst(others, 0, costs, bits) == 0);
#endif
}

void handles()
{
    virtual_time time;
    weirpp::options how;
    how.clock = time.clock();
    how.max_threads = 1;
    weirpp::limiter limiter = open_limiter(how);
    weirpp::error why;
    EXPECT(limiter.set_policies(ten, why));
    const weirpp::key key = limiter.make_key(limiter.find_policy("ten"), "k");
    weirpp::handle first = limiter.attach();
    weirpp::handle none = limiter.attach();
    EXPECT(first && !none && none.get() == nullptr);
    weirpp::verdict verdict;
    for (int i = 0; i < 20; i++) {
        EXPECT(none.check(key, verdict) && verdict.remaining() == UINT64_MAX);
    }
    EXPECT(first.check(key, 4));
    none = std::move(first);
    EXPECT(none && !first && none.check(key, 6) && !none.check(key)); // NOLINT(bugprone-use-after-move): it is empty
    none.unbind();
    std::thread([&limiter, key, handle = std::move(none)]() mutable {
        limiter.reset(key);
        EXPECT(handle.check(key, 10) && !handle.check(key));
    }).join();
    weirpp::handle again = limiter.attach(); /* the thread's copy has detached */
    EXPECT(again && !again.check(key));
    again.detach();
    EXPECT(!again && again.check(key));
    weirpp::handle owned(limiter.attach().release());
    EXPECT(owned && !owned.check(key));
    EXPECT(limiter.get_stats().thread_count == 1);
    owned.detach();

    {
        weirpp::limiter moved = std::move(limiter);
        EXPECT(moved && !limiter && limiter.get() == nullptr); // NOLINT(bugprone-use-after-move): it is empty
        limiter.close();
        limiter = std::move(moved);
    }
    move_on(limiter, time, 2h); /* the clock went with it */
    EXPECT(limiter.attach().check(key));
    limiter.close();
    EXPECT(!limiter);
    weirpp::limiter two = open_with(time, ten);
    weirpp::handle one_of_two = two.attach(), other_of_two = two.attach();
    EXPECT(two.get_stats().thread_count == 2);
    one_of_two = std::move(other_of_two);
    EXPECT(two.get_stats().thread_count == 1);
    one_of_two.detach();
    two = open_with(time, ten); /* closes the one before */
    EXPECT(two);
    weirpp::limiter adopted(open_with(time, ten));
    EXPECT(::weir_find_policy(adopted.get(), "ten") == adopted.find_policy("ten"));
}

void no_allocations()
{
    virtual_time time;
    weirpp::limiter limiter =
        open_with(time, {{"ten", ten[0].limits}, {"queue", {weirpp::limit::leaky_bucket(1, 1s)}}});
    const weirpp::policy_id policy = limiter.find_policy("ten"), queue = limiter.find_policy("queue");
    const std::string_view bytes = "a key that is longer than what a short string holds in itself";
    weirpp::verdict verdict;
    std::array<std::uint64_t, 1> bits{};
    const std::size_t before = allocations;
    unsigned allowed = 0;
    {
        weirpp::handle handle = limiter.attach();
        for (int i = 0; i < 100; i++) {
            const weirpp::key key = limiter.make_key(policy, bytes);
            handle.prefetch(key);
            allowed += handle.check(key);
            allowed += handle.check(key, verdict);
            allowed += handle.peek(key);
            allowed += handle.check_all(&key, nullptr, 1, verdict);
            allowed += static_cast<unsigned>(handle.check_burst(&key, nullptr, 1, bits.data()));
            allowed += handle.reserve(limiter.make_key(queue, bytes), 1, 1s).allowed;
            handle.refund(key);
            handle.charge(key, 1);
        }
    }
    EXPECT(allowed > 10);
    EXPECT(allocations == before);
    EXPECT(!std::string(64, 'x').empty() && allocations > before); /* they are counted */
}

void overrides_and_forms()
{
    virtual_time time;
    weirpp::limiter limiter = open_with(time, ten);
    weirpp::error why;
    EXPECT(weirpp::address_form(77) == nullptr);
    EXPECT(weirpp::network_form(4, 33) == nullptr && weirpp::network_form(4, 32) != nullptr);
    EXPECT(weirpp::network_form(6, 33) != nullptr && weirpp::network_form(6, 33) != weirpp::network_form(4, 32));
    EXPECT(limiter.set_key_form("ten", weirpp::address_form(64), why));
    EXPECT(limiter.set_override("ten:198.51.100.0/24", "deny", why));
    EXPECT(limiter.set_override("ten:198.51.100.7", "2", why));
    std::set<std::string> names;
    EXPECT(limiter.list_overrides([&](const weirpp::override_info &entry) {
        names.insert(entry.name);
        EXPECT(entry.in_force && !entry.from_fleet);
    }) == 2);
    EXPECT(names == (std::set<std::string>{"ten:198.51.100.0/24", "ten:198.51.100.7"}));
    weirpp::handle handle = limiter.attach();
    const unsigned char one[] = {198, 51, 100, 7}, other[] = {198, 51, 100, 8};
    const weirpp::key key = limiter.make_key(limiter.find_policy("ten"), one, sizeof(one));
    EXPECT(!handle.check(limiter.make_key(key.policy, other, sizeof(other))));
    EXPECT(handle.check(key, 2) && !handle.check(key));
    EXPECT(limiter.remove_override("ten:198.51.100.7", why) && limiter.remove_override("ten:198.51.100.0/24", why));
    unsigned bits = 0;
    const std::string_view address(reinterpret_cast<const char *>(one), sizeof(one));
    EXPECT(handle.find_override(address) == WEIR_NO_OVERRIDE);
    EXPECT(limiter.set_override("*:198.51.0.0/16", "allow", why));
    EXPECT(handle.find_override(address, &bits) == WEIR_OVERRIDE_ALLOW && bits == 16 && handle.check(key, 1000));
    EXPECT(limiter.remove_override("*:198.51.0.0/16", why));
    EXPECT(handle.check(key, 8) && !handle.check(key, 5));
    for (int i = 0; i < 5; i++) {
        move_on(limiter, time, 200ms);
    }
    const std::vector<weirpp::offender> denied = limiter.top_offenders(key.policy);
    EXPECT(denied.size() == 1 && denied[0].key == std::string("198.51.100.7") && denied[0].denied_units >= 6);
    weirpp::offender single;
    EXPECT(limiter.top_offenders(key.policy, &single, 1) == 1 && single.denied_units == denied[0].denied_units);
    const weirpp::stats stats = limiter.get_stats();
    EXPECT(stats.allowed_count >= 2 && stats.denied_count >= 2 && stats.key_capacity >= 1000);
    EXPECT(weirpp::duration_of(stats.fleet_age_ns) == weirpp::never);
    weirpp::policy_stats ten_stats;
    EXPECT(limiter.get_policy_stats(key.policy, ten_stats) && ten_stats.limit_count == 1 && !ten_stats.in_outage);
    EXPECT(ten_stats.allowed_count == stats.allowed_count && ten_stats.denied_count == stats.denied_count);
    EXPECT(!limiter.get_policy_stats(weirpp::no_policy, ten_stats) && ten_stats.allowed_count == 0);
    const std::string metrics = limiter.write_metrics();
    EXPECT(metrics.find("weir_checks_total") != std::string::npos && metrics.back() == '\n');
    EXPECT(std::strlen(metrics.c_str()) == metrics.size());
    const std::string status = limiter.write_status();
    EXPECT(status.find("\"policies\":[{") != std::string::npos && status.substr(status.size() - 2) == "}\n");
    EXPECT(weirpp::status_page().substr(0, 15) == "<!DOCTYPE html>");
}

void address_keys()
{
    sockaddr_in6 at{};
    at.sin6_family = AF_INET6;
    EXPECT(inet_pton(AF_INET6, "2001:db8:1:2::7", &at.sin6_addr) == 1);
    const auto *from = reinterpret_cast<const sockaddr *>(&at);
    const weirpp::address_key whole(from), network(from, 64), none(nullptr);
    EXPECT(whole && whole.size() == 16 && std::memcmp(whole.data(), &at.sin6_addr, 16) == 0);
    EXPECT(network && network.size() == 8 && std::memcmp(network.data(), &at.sin6_addr, 8) == 0);
    EXPECT(!none && none.size() == 0);
    const weirpp::address_key copy = network;
    EXPECT(copy.size() == 8 && std::memcmp(copy.data(), network.data(), 8) == 0);
}

void files()
{
    virtual_time time;
    weirpp::limiter limiter = open_with(time, ten);
    char path[] = "/tmp/weir-cpp-XXXXXX";
    const int descriptor = mkstemp(path);
    EXPECT(descriptor >= 0);
    close(descriptor);
    std::ofstream(path)
        << "policies:\n  - name: file\n    limits:\n      - { algorithm: token_bucket, limit: 1, period: 1s }\n";
    weirpp::error why;
    EXPECT(limiter.load_policies(path, why));
    EXPECT(limiter.find_policy("file") != weirpp::no_policy && limiter.find_policy("ten") == weirpp::no_policy);
    EXPECT(limiter.load_policies(path, ten, why));
    EXPECT(limiter.find_policy("file") != weirpp::no_policy && limiter.find_policy("ten") != weirpp::no_policy);
    std::ofstream(path) << "policies:\n  - nome: file\n";
    EXPECT(!limiter.load_policies(path, why) && std::strncmp(why.what(), path, std::strlen(path)) == 0);
    EXPECT(!limiter.load_policies(path, ten, why) && limiter.find_policy("file") != weirpp::no_policy);
    unlink(path);
}

void required()
{
    weirpp::options how;
    how.no_thread = true;
    how.max_keys = 1000;
    how.required_policies = {"ten", "login"};
    weirpp::error why;
    weirpp::limiter limiter = weirpp::limiter::open(how, why);
    EXPECT(limiter && !limiter.set_policies(ten, why));
    EXPECT(std::string(why.what()).find("\"login\" is missing") != std::string::npos);
    how.required_policies = {std::string("a\0b", 3)};
    EXPECT(!weirpp::limiter::open(how, why) && std::string(why.what()).find("zero byte") != std::string::npos);
    char path[] = "/tmp/weir-cpp-XXXXXX";
    const int descriptor = mkstemp(path);
    EXPECT(descriptor >= 0);
    close(descriptor);
    std::ofstream(path)
        << "policies:\n  - name: logn\n    limits:\n      - { algorithm: token_bucket, limit: 1, period: 1s }\n";
    EXPECT(weirpp::limiter::validate_policies(path, {}, why) &&
           weirpp::limiter::validate_policies(path, {"logn"}, why));
    EXPECT(!weirpp::limiter::validate_policies(path, {"login"}, why));
    EXPECT(std::string(why.what()).find("did you mean it by \"logn\"?") != std::string::npos);
    std::remove(path);
    EXPECT(!weirpp::limiter::validate_policies(path, {}, why) && why.code() == std::errc::no_such_file_or_directory);
}

void shadow()
{
    virtual_time time;
    std::vector<weirpp::policy> policies = ten;
    policies[0].mode = weirpp::mode::shadow;
    weirpp::limiter limiter = open_with(time, policies);
    weirpp::handle handle = limiter.attach();
    const weirpp::key key = limiter.make_key(limiter.find_policy("ten"), "k");
    weirpp::verdict verdict;
    EXPECT(handle.check(key, 10, verdict) && !verdict.would_deny());
    EXPECT(handle.check(key, verdict) && verdict.would_deny() && verdict);
}

void logs()
{
    weirpp::options how;
    how.no_thread = true;
    how.redis_url = "redis://127.0.0.1:1";
    how.sync_interval = 10ms;
    how.redis_timeout = 100ms;
    how.max_keys = 1000;
    std::string line;
    how.log = [&line](weirpp::log_level level, std::string_view message) {
        line = message;
        EXPECT(level == weirpp::log_level::error || level == weirpp::log_level::warning ||
               level == weirpp::log_level::info);
#if WEIRPP_EXCEPTIONS
        throw std::runtime_error("a log function that fails");
#endif
    };
    weirpp::limiter opened = open_limiter(how);
    how.log = nullptr;
    weirpp::limiter limiter = std::move(opened); /* the log function goes with it */
    weirpp::error why;
    EXPECT(limiter.poll_fd(why) >= 0);
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (line.empty() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(limiter.poll(why), 10ms));
    }
    EXPECT(!line.empty() && !why);
    EXPECT(limiter.sync(20s) == std::errc::connection_refused);
    limiter.close();
    weirpp::limiter alone = open_limiter({});
    EXPECT(alone.sync(1s) == std::errc::not_connected && alone.sync(-1s) == std::errc::not_connected);
}

void processes()
{
    weirpp::options how;
    how.no_thread = true;
    how.max_keys = 1000;
    how.max_processes = 4;
    how.shared_name = "/weir-cpp-test-" + std::to_string(getpid());
    weirpp::limiter limiter = open_limiter(how);
    weirpp::error why;
    EXPECT(limiter.set_policies(ten, why));
    const weirpp::key key = limiter.make_key(limiter.find_policy("ten"), "k");
    const pid_t child = fork();
    if (child == 0) {
        weirpp::error in_child;
        const bool good = limiter.join(in_child) && limiter.attach().check(key, 10);
        limiter.close();
        _exit(good ? 0 : 1);
    }
    int status = -1;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    EXPECT(!limiter.attach().check(key));
    weirpp::limiter again = open_limiter(how);
    EXPECT(limiter.get_stats().process_count == 2);
    again = weirpp::limiter(); /* closes what was there */
    EXPECT(limiter.get_stats().process_count == 1);
    EXPECT(!weirpp::limiter::unlink(how.shared_name));
    EXPECT(weirpp::limiter::unlink(how.shared_name) == std::errc::no_such_file_or_directory);
    EXPECT(weirpp::limiter::unlink(std::string("/a\0b", 4)) == std::errc::invalid_argument);
}

void versions()
{
    const std::string header = std::to_string(WEIR_VERSION_MAJOR) + "." + std::to_string(WEIR_VERSION_MINOR) + "." +
                               std::to_string(WEIR_VERSION_PATCH);
    EXPECT(weirpp::version() == header);
}

const struct {
    const char *name;
    void (*run)();
} tests[] = {
    {"an error has a code and a sentence, and no failure leaves it empty", values_of_errors},
    {"the forms without an error throw weirpp::error", exceptions},
    {"every field of limits and policies arrives, and comes back", limits_and_policies},
    {"checks, refunds, charges and verdicts are those of weir.h", checks},
    {"a reservation says how long to wait", reservations},
    {"bursts decide as single checks do, and spans are not left", bursts},
    {"handles and limiters move, and end what they own", handles},
    {"nothing is allocated on the way of a check", no_allocations},
    {"overrides, key forms, offenders, statistics and metrics", overrides_and_forms},
    {"a client's key is its address up to the prefix", address_keys},
    {"policies come from files, and from files and the program at once", files},
    {"a set without a required policy is refused", required},
    {"shadow mode lets pass and says so", shadow},
    {"the log function is called, moves with the limiter and may throw", logs},
    {"a forked process joins, and the memory's name is removed", processes},
    {"the version is that of the library", versions},
};

} // namespace

/* Not inlined: the compiler would see free() of what operator new returned. */
[[gnu::noinline]] void *operator new(std::size_t size)
{
    allocations++;
    void *const memory = std::malloc(size != 0 ? size : 1);
    if (memory == nullptr) {
        std::abort();
    }
    return memory;
}

[[gnu::noinline]] void operator delete(void *memory) noexcept
{
    std::free(memory);
}

[[gnu::noinline]] void operator delete(void *memory, std::size_t) noexcept
{
    std::free(memory);
}

int main()
{
    std::printf("TAP version 13\n1..%zu\n", sizeof(tests) / sizeof(tests[0]));
    int number = 0;
    bool good = true;
    for (const auto &test : tests) {
        failures = 0;
        test.run();
        good = good && failures == 0;
        std::printf("%s %d - %s\n", failures == 0 ? "ok" : "not ok", ++number, test.name);
        std::fflush(stdout);
    }
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
