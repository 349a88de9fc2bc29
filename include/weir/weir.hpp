/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir.h for C++17 and later: classes that own, times of std::chrono, errors as exceptions or as values.
 *
 *   weirpp::limiter   owns a weir: one node of the fleet, with its policies
 *   weirpp::handle    owns a weir_thread: the checks of one thread
 *   weirpp::options   how to open a limiter
 *   weirpp::policy    a named set of limits; weirpp::limit: one of them
 *   weirpp::key       what is limited: a policy and some bytes
 *   weirpp::verdict   the answer to a check
 *   weirpp::error     why a call failed: an exception, and an argument of the calls that throw nothing
 *
 * The namespace is not called weir, since that is the name of a type of weir.h. weir.h explains each call: bounds,
 * errors, what may run at the same time. This header says what is different in C++. Everything is inline; there is
 * nothing to link but libweir. limiter::get and handle::get return what the calls of weir.h take.
 *
 * The calls of a handle, limiter::make_key and the functions of a verdict are the calls of weir.h: they allocate
 * nothing, throw nothing and test nothing.
 *
 * A call that can fail has two forms. `f(arguments)` throws weirpp::error. `f(arguments, error)` returns false, or an
 * empty object, and fills in `error`; it throws nothing. limiter::reset, limiter::sync and limiter::unlink return a
 * std::error_code, as their failures are ordinary answers. Functions that return a std::string or a std::vector may
 * throw std::bad_alloc. With -fno-exceptions the forms that throw are not declared. All files of a program that include
 * this header are compiled alike, with or without exceptions.
 *
 * Times are std::chrono durations; `never` stands for UINT64_MAX of weir.h. Counts are units of cost, as in weir.h.
 */
#ifndef WEIR_HPP
#define WEIR_HPP

#if __cplusplus < 201703L
#error "weir.hpp needs C++17 or later; weir.h can be used from C++11 on"
#endif

#include <weir/weir.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>
#if __has_include(<version>)
#include <version>
#endif
#if defined(__cpp_lib_span)
#include <span>
#endif

#if defined(__cpp_exceptions)
/* The forms that throw are declared. */
#define WEIRPP_EXCEPTIONS 1
#else
/* -fno-exceptions: they are not. */
#define WEIRPP_EXCEPTIONS 0
#endif

namespace weirpp
{

/* A policy's number. A name keeps its number until the limiter is closed. */
using policy_id = ::weir_policy_id;
inline constexpr policy_id no_policy = 0;

/* What limiter::make_key makes. The bytes stay the caller's, and are readable and unchanged whenever the key is used.
 */
using key = ::weir_key;

/* Structs that the library fills in, or reads, as they are in weir.h. */
using stats = ::weir_stats;
using policy_stats = ::weir_policy_stats;
using offender = ::weir_offender;
using policy_info = ::weir_policy_info;
using override_info = ::weir_override;
using override_answer = ::weir_override_answer;
using key_form = ::weir_key_form;

enum class algorithm {
    fixed_window = WEIR_FIXED_WINDOW,
    sliding_window = WEIR_SLIDING_WINDOW,
    sliding_log = WEIR_SLIDING_LOG,
    token_bucket = WEIR_TOKEN_BUCKET,
    leaky_bucket = WEIR_LEAKY_BUCKET
};
enum class calendar { none = WEIR_CALENDAR_NONE, day = WEIR_CALENDAR_DAY, month = WEIR_CALENDAR_MONTH };
enum class outage {
    share = WEIR_OUTAGE_SHARE,
    local = WEIR_OUTAGE_LOCAL,
    open = WEIR_OUTAGE_OPEN,
    closed = WEIR_OUTAGE_CLOSED
};
enum class mode { enforce = WEIR_ENFORCE, shadow = WEIR_SHADOW };
enum class scope { fleet = WEIR_SCOPE_FLEET, process = WEIR_SCOPE_PROCESS };
enum class basis { process = WEIR_BASIS_PROCESS, fleet = WEIR_BASIS_FLEET, outage = WEIR_BASIS_OUTAGE };
enum class log_level { error = WEIR_LOG_ERROR, warning = WEIR_LOG_WARNING, info = WEIR_LOG_INFO };
enum class header_style {
    draft_11 = WEIR_HEADERS_DRAFT_11,
    trio = WEIR_HEADERS_TRIO,
    x_unix = WEIR_HEADERS_X_UNIX,
    x_iso8601 = WEIR_HEADERS_X_ISO8601,
    retry_after = WEIR_HEADERS_RETRY_AFTER
};

/* A time that does not come. */
inline constexpr std::chrono::nanoseconds never = std::chrono::nanoseconds::max();

/* The nanoseconds of a field of weir.h, such as stats.fleet_age_ns. What a duration cannot hold is `never`. */
constexpr std::chrono::nanoseconds duration_of(std::uint64_t ns) noexcept
{
    return ns < static_cast<std::uint64_t>(never.count())
               ? std::chrono::nanoseconds(static_cast<std::chrono::nanoseconds::rep>(ns))
               : never;
}

/*
 * Why a call failed: a code and a sentence that names the field and the way out. A default error is no failure.
 * Threads: as any value. Copying allocates nothing and throws nothing.
 */
class error : public std::exception
{
  public:
    error() noexcept = default;

    explicit error(const ::weir_error &from) noexcept : error_(from)
    {
    }

    /* `code` is a negative errno value, and `sentence` is cut where a weir_error ends. */
    error(int code, const char *sentence) noexcept
    {
        error_.code = code;
        static_cast<void>(std::snprintf(error_.message, sizeof(error_.message), "%s", sentence));
    }

    /* Comparable with std::errc: e.code() == std::errc::invalid_argument. */
    std::error_code code() const noexcept
    {
        return {-error_.code, std::generic_category()};
    }

    /* The sentence; empty where nothing failed. */
    const char *what() const noexcept override
    {
        return error_.message;
    }

    /* Whether a call failed. */
    explicit operator bool() const noexcept
    {
        return error_.code != 0;
    }

    /* For calls of weir.h. */
    ::weir_error *get() noexcept
    {
        return &error_;
    }

  private:
    ::weir_error error_{};
};

/*
 * One limit: `units` per `period`. See weir_limit for the ranges. In C++20:
 *
 *   weirpp::limit{.algorithm = weirpp::algorithm::token_bucket, .units = 100, .period = 1s, .burst = 20}
 *
 * and from C++17 on weirpp::limit::token_bucket(100, 1s, 20).
 */
struct limit {
    weirpp::algorithm algorithm = weirpp::algorithm::fixed_window;
    std::uint64_t units = 0;
    std::chrono::nanoseconds period{0};
    std::uint64_t burst = 0; /* 0: as many as `units` */
    weirpp::calendar calendar = weirpp::calendar::none;
    std::uint64_t delay = 0;
    std::string name{}; /* empty: the policy's name */

    static limit fixed_window(std::uint64_t units, std::chrono::nanoseconds period)
    {
        return {weirpp::algorithm::fixed_window, units, period};
    }

    static limit sliding_window(std::uint64_t units, std::chrono::nanoseconds period)
    {
        return {weirpp::algorithm::sliding_window, units, period};
    }

    static limit sliding_log(std::uint64_t units, std::chrono::nanoseconds period)
    {
        return {weirpp::algorithm::sliding_log, units, period};
    }

    static limit token_bucket(std::uint64_t units, std::chrono::nanoseconds period, std::uint64_t burst = 0)
    {
        return {weirpp::algorithm::token_bucket, units, period, burst};
    }

    static limit leaky_bucket(std::uint64_t units, std::chrono::nanoseconds period, std::uint64_t burst = 0,
                              std::uint64_t delay = 0)
    {
        return {weirpp::algorithm::leaky_bucket, units, period, burst, weirpp::calendar::none, delay};
    }

    /* So many units in each UTC day or month. */
    static limit quota(std::uint64_t units, weirpp::calendar calendar)
    {
        return {weirpp::algorithm::fixed_window, units, std::chrono::nanoseconds(0), 0, calendar};
    }

    /* The limit as a policy has it that limiter::list_policies lists. Allocates. */
    static limit copy_of(const ::weir_limit &from)
    {
        return {static_cast<weirpp::algorithm>(from.algorithm),
                from.limit,
                duration_of(from.period_ns),
                from.burst,
                static_cast<weirpp::calendar>(from.calendar),
                from.delay,
                from.name != nullptr ? from.name : ""};
    }
};

/*
 * A named set of one to WEIR_MAX_LIMITS limits. See weir_policy. weirpp::policy{"api", {limit::token_bucket(100, 1s)}}
 * is a policy whose other fields have their defaults.
 */
struct policy {
    std::string name{};
    std::vector<limit> limits{};
    weirpp::mode mode = weirpp::mode::enforce;
    weirpp::scope scope = weirpp::scope::fleet;
    bool hash_keys = false;
    weirpp::outage on_outage = weirpp::outage::share;
    weirpp::outage on_long_outage = weirpp::outage::share;
    std::chrono::milliseconds outage_grace{0}; /* 0: three sync intervals */
    std::chrono::milliseconds long_outage{0};  /* 0: never */

    /* The policy that a policy_info shows. limiter::set_policies accepts it as it is. Allocates. */
    static policy copy_of(const ::weir_policy &from)
    {
        policy made;
        made.name = from.name;
        made.limits.reserve(from.limit_count);
        for (std::size_t i = 0; i < from.limit_count; i++) {
            made.limits.push_back(limit::copy_of(from.limits[i]));
        }
        made.mode = static_cast<weirpp::mode>(from.mode);
        made.scope = static_cast<weirpp::scope>(from.scope);
        made.hash_keys = from.hash_keys;
        made.on_outage = static_cast<weirpp::outage>(from.on_outage);
        made.on_long_outage = static_cast<weirpp::outage>(from.on_long_outage);
        made.outage_grace = std::chrono::milliseconds(from.outage_grace_ms);
        made.long_outage = std::chrono::milliseconds(from.long_outage_ms);
        return made;
    }
};

/*
 * A clock of the host: see weir_clock. `monotonic` is the time since any moment, `wall` the time since 1970-01-01 00:00
 * UTC. One thread at a time calls them. A function that throws ends the program.
 */
struct host_clock {
    std::function<std::chrono::nanoseconds()> monotonic{};
    std::function<std::chrono::nanoseconds()> wall{};
};

/*
 * How to open a limiter: see weir_options for units, ranges and defaults. What is 0 or empty means the default. In
 * C++20: weirpp::options{.redis_url = "redis://10.0.0.5", .max_keys = 1000000}.
 */
struct options {
    std::string redis_url{}; /* empty: no fleet */
    std::string prefix{};
    std::string node_name{};
    std::size_t max_keys = 0;
    std::uint32_t max_threads = 0;
    std::chrono::milliseconds sync_interval{0};
    std::chrono::milliseconds redis_timeout{0};
    std::chrono::microseconds tick{0};
    bool no_thread = false;
    host_clock clock{}; /* both functions empty: the system's clock */
    /* See weir_log_fn. What the function throws is dropped. */
    std::function<void(log_level, std::string_view)> log{};
    std::size_t max_log_units = 0;
    std::uint32_t expected_nodes = 0;
    std::string fleet_secret{};
    bool no_denial_log = false;
    bool shared = false;
    std::uint32_t max_processes = 0;
    std::string shared_name{};
    std::vector<std::string> required_policies{};
};

/*
 * The answer to a check: see weir_verdict. A verdict that no check has filled in has no value, as with weir_verdict.
 * Threads: as any value.
 */
class verdict
{
  public:
    verdict() noexcept = default;

    explicit verdict(const ::weir_verdict &from) noexcept : verdict_(from)
    {
    }

    bool allowed() const noexcept
    {
        return verdict_.allowed;
    }

    /* Shadow mode: mode::enforce would have denied the request. */
    bool would_deny() const noexcept
    {
        return verdict_.would_deny;
    }

    /* The limit that decided, in its policy. */
    std::size_t limit_index() const noexcept
    {
        return verdict_.limit_index;
    }

    /* handle::check_all: the key whose limit decided; else 0. */
    std::size_t key_index() const noexcept
    {
        return verdict_.key_index;
    }

    weirpp::basis basis() const noexcept
    {
        return static_cast<weirpp::basis>(verdict_.basis);
    }

    /* The units that the deciding limit lets pass at once. */
    std::uint64_t limit() const noexcept
    {
        return verdict_.limit;
    }

    /* The units that may still pass at once now. */
    std::uint64_t remaining() const noexcept
    {
        return verdict_.remaining;
    }

    /* When the same cost can pass; 0 when allowed; `never`: the cost is above what the limit lets pass at once. */
    std::chrono::nanoseconds retry_after() const noexcept
    {
        return duration_of(verdict_.retry_after_ns);
    }

    /* When the key will be as if never used; `never`: an override denies the key. */
    std::chrono::nanoseconds reset_after() const noexcept
    {
        return duration_of(verdict_.reset_after_ns);
    }

    /* How long ago the last good sync was; `never`: there has been none. */
    std::chrono::nanoseconds fleet_age() const noexcept
    {
        return duration_of(verdict_.fleet_age_ns);
    }

    /* When this was decided, by the clock of the weir: the other times count from it. 1970: nothing was asked. */
    std::chrono::time_point<std::chrono::system_clock, std::chrono::nanoseconds> decided_at() const noexcept
    {
        return std::chrono::time_point<std::chrono::system_clock, std::chrono::nanoseconds>(
            duration_of(verdict_.decided_ns));
    }

    explicit operator bool() const noexcept
    {
        return verdict_.allowed;
    }

    /* For calls of weir.h. */
    ::weir_verdict *get() noexcept
    {
        return &verdict_;
    }

    const ::weir_verdict *get() const noexcept
    {
        return &verdict_;
    }

  private:
    ::weir_verdict verdict_;
};

/*
 * What handle::reserve answers. `wait` is the time to wait before the request may go; where the request is refused,
 * the time after which it could go at once, or `never`.
 */
struct reservation {
    bool allowed;
    std::chrono::nanoseconds wait;

    explicit operator bool() const noexcept
    {
        return allowed;
    }
};

/* The words that the answers of a burst of `count` requests take, and the answer to one request in them. */
constexpr std::size_t burst_words(std::size_t count) noexcept
{
    return count / 64 + (count % 64 != 0 ? 1 : 0);
}

constexpr bool is_allowed(const std::uint64_t *allowed_bits, std::size_t request) noexcept
{
    return (allowed_bits[request / 64] >> (request % 64) & 1) != 0;
}

/* What the rest of this header is made of, and no part of the interface. */
namespace detail
{

inline std::error_code code_of(int result) noexcept
{
    return {result < 0 ? -result : 0, std::generic_category()};
}

/* A time before now is 0. */
inline std::uint64_t count_of(std::chrono::nanoseconds time) noexcept
{
    return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 0;
}

/* A number that the field cannot hold, or a negative one, becomes the greatest: the library refuses that by a sentence.
 */
template <class Rep> std::uint32_t field_of(Rep count) noexcept
{
    const auto number = static_cast<std::uint64_t>(count);
    return number < UINT32_MAX ? static_cast<std::uint32_t>(number) : UINT32_MAX;
}

inline const char *text_or_null(const std::string &text) noexcept
{
    return text.empty() ? nullptr : text.c_str();
}

/* C reads a text up to its first zero byte, and would take what is before it for the whole. */
inline bool is_terminated_text(const char *field, const std::string &text, error &why) noexcept
{
    if (text.find('\0') == std::string::npos) {
        return true;
    }
    char sentence[sizeof(::weir_error::message)];
    static_cast<void>(std::snprintf(sentence, sizeof(sentence), "%s has a zero byte; give a text without one", field));
    why = error(-EINVAL, sentence);
    return false;
}

/* Calls what may allocate or copy a callable. What is thrown becomes an error. */
template <class Made, class Call> Made made_by(error &why, Call &&call) noexcept
{
#if WEIRPP_EXCEPTIONS
    try {
        return call();
    } catch (...) {
        why = error(-ENOMEM, "the arguments could not be copied; there is too little memory, or a copy threw");
        return Made();
    }
#else
    static_cast<void>(why);
    return call();
#endif
}

/* Policies as weir.h takes them, which point into the policies that they are made of. */
class c_policies
{
  public:
    explicit c_policies(const std::vector<policy> &from)
    {
        std::size_t limit_count = 0;
        for (const policy &each : from) {
            limit_count += each.limits.size();
        }
        limits_.reserve(limit_count); /* so that no limit moves */
        policies_.reserve(from.size());
        for (const policy &each : from) {
            add(each);
        }
    }

    const ::weir_policy *data() const noexcept
    {
        return policies_.data();
    }

    std::size_t size() const noexcept
    {
        return policies_.size();
    }

  private:
    void add(const policy &from)
    {
        const std::size_t first = limits_.size();
        for (const limit &each : from.limits) {
            limits_.push_back({static_cast<::weir_algorithm>(each.algorithm), each.units, count_of(each.period),
                               each.burst, static_cast<::weir_calendar>(each.calendar), each.delay,
                               text_or_null(each.name)});
        }
        policies_.push_back({from.name.c_str(), limits_.data() + first, from.limits.size(),
                             static_cast<::weir_mode>(from.mode), static_cast<::weir_scope>(from.scope), from.hash_keys,
                             static_cast<::weir_outage>(from.on_outage),
                             static_cast<::weir_outage>(from.on_long_outage), field_of(from.outage_grace.count()),
                             field_of(from.long_outage.count())});
    }

    std::vector<::weir_limit> limits_;
    std::vector<::weir_policy> policies_;
};

inline bool are_terminated_texts(const std::vector<policy> &policies, error &why) noexcept
{
    for (const policy &each : policies) {
        if (!is_terminated_text("the name of a policy", each.name, why)) {
            return false;
        }
        for (const limit &part : each.limits) {
            if (!is_terminated_text("the name of a limit", part.name, why)) {
                return false;
            }
        }
    }
    return true;
}

inline bool are_terminated_texts(const char *field, const std::vector<std::string> &texts, error &why) noexcept
{
    for (const std::string &each : texts) {
        if (!is_terminated_text(field, each, why)) {
            return false;
        }
    }
    return true;
}

/* Texts as weir.h takes them, which point into those that they are made of. */
inline std::vector<const char *> c_texts(const std::vector<std::string> &from)
{
    std::vector<const char *> texts;
    texts.reserve(from.size());
    for (const std::string &each : from) {
        texts.push_back(each.c_str());
    }
    return texts;
}

inline bool are_terminated_texts(const options &from, error &why) noexcept
{
    return is_terminated_text("options: redis_url", from.redis_url, why) &&
           is_terminated_text("options: prefix", from.prefix, why) &&
           is_terminated_text("options: node_name", from.node_name, why) &&
           is_terminated_text("options: fleet_secret", from.fleet_secret, why) &&
           is_terminated_text("options: shared_name", from.shared_name, why) &&
           are_terminated_texts("a name in options: required_policies", from.required_policies, why);
}

/* The functions of the host that a limiter calls, at an address that stays when the limiter moves. */
struct host_functions {
    std::function<void(log_level, std::string_view)> log;
    host_clock clock;

    static void write_log(void *arg, ::weir_log_level level, const char *message) noexcept
    {
        const auto *host = static_cast<host_functions *>(arg);
#if WEIRPP_EXCEPTIONS
        try {
            host->log(static_cast<log_level>(level), message);
        } catch (...) {
            /* The line is lost: the background thread has nobody to tell. */
        }
#else
        host->log(static_cast<log_level>(level), message);
#endif
    }

    static std::uint64_t monotonic_ns(void *arg) noexcept
    {
        return count_of(static_cast<host_functions *>(arg)->clock.monotonic());
    }

    static std::uint64_t wall_ns(void *arg) noexcept
    {
        return count_of(static_cast<host_functions *>(arg)->clock.wall());
    }
};

/* Calls any callable for each entry of a list. An exception waits until the list is over: C code cannot be unwound. */
template <class Each, class Entry> class listing
{
  public:
    explicit listing(Each &each) noexcept : each_(each)
    {
    }

    static void visit(void *arg, const Entry *entry) noexcept
    {
        auto *self = static_cast<listing *>(arg);
#if WEIRPP_EXCEPTIONS
        if (self->thrown_ != nullptr) {
            return;
        }
        try {
            self->each_(*entry);
        } catch (...) {
            self->thrown_ = std::current_exception();
        }
#else
        self->each_(*entry);
#endif
    }

    void rethrow() const
    {
#if WEIRPP_EXCEPTIONS
        if (thrown_ != nullptr) {
            std::rethrow_exception(thrown_);
        }
#endif
    }

  private:
    Each &each_;
#if WEIRPP_EXCEPTIONS
    std::exception_ptr thrown_;
#endif
};

/* A text of a size that is known only when the text is written; `write` is called until all of the text fits. */
template <class Write> std::string text_by(Write &&write)
{
    std::string text;
    int size = write(nullptr, 0);
    while (size > 0 && static_cast<std::size_t>(size) > text.size()) {
        text.resize(static_cast<std::size_t>(size));
        size = write(text.data(), text.size() + 1);
    }
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
}

} // namespace detail

/*
 * One thread's private counters: owns a weir_thread, which the destructor detaches. limiter::attach makes handles.
 *
 * An empty handle (limiter::attach found max_threads attached, or the handle was moved from) lets every request pass
 * and counts none, as limiting fails open.
 *
 * Lifetime: a handle ends before its limiter is closed, and before or with the thread that attached it: as a local
 * variable, or as a thread_local one. Only a handle that unbind() was called for may be moved to another thread. Where
 * neither is possible, release() gives the weir_thread up: the library detaches it when the thread ends.
 * Threads: the thread that attached the handle; of an unbound handle one thread at a time.
 * Errors: none. Nothing here throws or allocates; the system calls are those of weir_check.
 */
class handle
{
  public:
    handle() noexcept = default;

    /* Owns a handle that weir_attach returned. */
    explicit handle(::weir_thread *thread) noexcept : thread_(thread)
    {
    }

    handle(handle &&other) noexcept : thread_(other.release())
    {
    }

    handle &operator=(handle &&other) noexcept
    {
        if (this != &other) {
            detach();
            thread_ = other.release();
        }
        return *this;
    }

    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;

    ~handle()
    {
        detach();
    }

    /* Whether requests are limited. */
    explicit operator bool() const noexcept
    {
        return thread_ != nullptr;
    }

    ::weir_thread *get() const noexcept
    {
        return thread_;
    }

    /* Leaves the handle empty and detaches nothing. */
    ::weir_thread *release() noexcept
    {
        return std::exchange(thread_, nullptr);
    }

    /* weir_detach. The handle is empty after the call. */
    void detach() noexcept
    {
        ::weir_detach(release());
    }

    /* weir_unbind: the handle may go from thread to thread. */
    void unbind() noexcept
    {
        ::weir_unbind(thread_);
    }

    /* weir_set_time: the time of CLOCK_MONOTONIC by which reserve() decides; 0: it reads the clock. */
    void set_time(std::chrono::nanoseconds monotonic) noexcept
    {
        ::weir_set_time(thread_, static_cast<std::uint64_t>(monotonic.count()));
    }

    /* weir_check: may one more request of `cost` units pass? Counts the request where it may. */
    [[nodiscard]] bool check(const key &k, std::uint64_t cost = 1) noexcept
    {
        return ::weir_check(thread_, &k, cost, nullptr);
    }

    [[nodiscard]] bool check(const key &k, std::uint64_t cost, verdict &answer) noexcept
    {
        return ::weir_check(thread_, &k, cost, answer.get());
    }

    [[nodiscard]] bool check(const key &k, verdict &answer) noexcept
    {
        return ::weir_check(thread_, &k, 1, answer.get());
    }

    /*
     * weir_check_burst: many keys in order. `costs` may be nullptr: 1 each. `allowed_bits` has burst_words(count)
     * words, or is nullptr; is_allowed reads it. Returns how many may pass.
     */
    std::size_t check_burst(const key *keys, const std::uint64_t *costs, std::size_t count,
                            std::uint64_t *allowed_bits) noexcept
    {
        return ::weir_check_burst(thread_, keys, costs, count, allowed_bits);
    }

    /* weir_check_all: may a request pass that counts against several keys? All of them are counted, or none. */
    [[nodiscard]] bool check_all(const key *keys, const std::uint64_t *costs, std::size_t count) noexcept
    {
        return ::weir_check_all(thread_, keys, costs, count, nullptr);
    }

    [[nodiscard]] bool check_all(const key *keys, const std::uint64_t *costs, std::size_t count,
                                 verdict &answer) noexcept
    {
        return ::weir_check_all(thread_, keys, costs, count, answer.get());
    }

    /* weir_check_all_burst: many requests of `keys_per_request` keys each. */
    std::size_t check_all_burst(const key *keys, std::size_t keys_per_request, std::size_t requests,
                                const std::uint64_t *costs, std::uint64_t *allowed_bits) noexcept
    {
        return ::weir_check_all_burst(thread_, keys, keys_per_request, requests, costs, allowed_bits);
    }

    /* weir_check_requests: check_all_burst, that also says which key denied each request. */
    std::size_t check_requests(const weir_requests &requests) noexcept
    {
        return ::weir_check_requests(thread_, &requests);
    }

#if defined(__cpp_lib_span)
    /*
     * The bursts over spans. An empty span of costs stands for 1 each, an empty span of bits for no bits. A request
     * that one of the other spans has no room for is not decided and not counted.
     */
    std::size_t check_burst(std::span<const key> keys, std::span<const std::uint64_t> costs,
                            std::span<std::uint64_t> allowed_bits) noexcept
    {
        const std::size_t count = decided(keys.size(), costs.size(), 1, allowed_bits.size());
        return ::weir_check_burst(thread_, keys.data(), data_or_null(costs), count, data_or_null(allowed_bits));
    }

    std::size_t check_all_burst(std::span<const key> keys, std::size_t keys_per_request,
                                std::span<const std::uint64_t> costs, std::span<std::uint64_t> allowed_bits) noexcept
    {
        const std::size_t requests = keys_per_request != 0 ? keys.size() / keys_per_request : 0;
        return ::weir_check_all_burst(thread_, keys.data(), keys_per_request,
                                      decided(requests, costs.size(), keys_per_request, allowed_bits.size()),
                                      data_or_null(costs), data_or_null(allowed_bits));
    }

    /* With fewer costs than keys the request is denied, as one of more than WEIR_MAX_KEYS_AT_ONCE keys is. */
    [[nodiscard]] bool check_all(std::span<const key> keys, std::span<const std::uint64_t> costs = {}) noexcept
    {
        return ::weir_check_all(thread_, keys.data(), data_or_null(costs), asked(keys.size(), costs.size()), nullptr);
    }

    [[nodiscard]] bool check_all(std::span<const key> keys, std::span<const std::uint64_t> costs,
                                 verdict &answer) noexcept
    {
        return ::weir_check_all(thread_, keys.data(), data_or_null(costs), asked(keys.size(), costs.size()),
                                answer.get());
    }

    [[nodiscard]] bool check_all(std::span<const key> keys, verdict &answer) noexcept
    {
        return ::weir_check_all(thread_, keys.data(), nullptr, keys.size(), answer.get());
    }
#endif

    /* weir_prefetch: a check of the key follows in some 50 to 500 ns. */
    void prefetch(const key &k) noexcept
    {
        ::weir_prefetch(thread_, &k);
    }

    /* weir_peek: the answer that check would give. Counts nothing. */
    [[nodiscard]] bool peek(const key &k, std::uint64_t cost = 1) noexcept
    {
        return ::weir_peek(thread_, &k, cost, nullptr);
    }

    [[nodiscard]] bool peek(const key &k, std::uint64_t cost, verdict &answer) noexcept
    {
        return ::weir_peek(thread_, &k, cost, answer.get());
    }

    [[nodiscard]] bool peek(const key &k, verdict &answer) noexcept
    {
        return ::weir_peek(thread_, &k, 1, answer.get());
    }

    /* weir_find_override: what an override of all policies says of an address of 4 or 16 bytes. Counts nothing. */
    [[nodiscard]] override_answer find_override(std::string_view address, unsigned *bits = nullptr) noexcept
    {
        return ::weir_find_override(thread_, address.data(), address.size(), bits);
    }

    /* weir_refund: gives back units that were not used. */
    void refund(const key &k, std::uint64_t cost = 1) noexcept
    {
        ::weir_refund(thread_, &k, cost);
    }

    /* weir_charge: counts units that are known only afterwards, whether they fit or not. */
    void charge(const key &k, std::uint64_t cost) noexcept
    {
        ::weir_charge(thread_, &k, cost);
    }

    /* weir_count_denied: counts requests that the caller has denied itself, because a denial was known to hold. */
    void count_denied(const key &k, std::uint64_t requests, std::uint64_t units) noexcept
    {
        ::weir_count_denied(thread_, &k, requests, units);
    }

    /* weir_reserve: takes a place in the queue where the wait is at most `max_wait`. */
    [[nodiscard]] reservation reserve(const key &k, std::uint64_t cost, std::chrono::nanoseconds max_wait) noexcept
    {
        std::uint64_t wait_ns = 0;
        const bool allowed = ::weir_reserve(thread_, &k, cost, detail::count_of(max_wait), &wait_ns);
        return {allowed, duration_of(wait_ns)};
    }

  private:
#if defined(__cpp_lib_span)
    template <class T> static T *data_or_null(std::span<T> span) noexcept
    {
        return span.empty() ? nullptr : span.data();
    }

    /* The requests that have their costs and bits. */
    static constexpr std::size_t decided(std::size_t requests, std::size_t costs, std::size_t costs_per_request,
                                         std::size_t words) noexcept
    {
        if (costs != 0 && costs_per_request != 0 && costs / costs_per_request < requests) {
            requests = costs / costs_per_request;
        }
        return words != 0 && words < burst_words(requests) ? words * 64 : requests;
    }

    static constexpr std::size_t asked(std::size_t keys, std::size_t costs) noexcept
    {
        return costs != 0 && costs < keys ? WEIR_MAX_KEYS_AT_ONCE + 1 : keys;
    }
#endif

    ::weir_thread *thread_ = nullptr;
};

/*
 * A limiter: owns a weir, one node of the fleet. The destructor closes it, and blocks up to redis_timeout.
 *
 * Lifetime: the limiter ends after all its handles. It may be moved while no other thread uses it. An empty limiter
 * (default, moved from, or of a call that failed) allows open, close, get and bool alone.
 * Threads: as the table of weir.h says for the calls of these names. Closing and moving are weir_close: nothing beside.
 * Errors: as at the top of this header.
 */
class limiter
{
  public:
    limiter() noexcept = default;

    /* Owns a weir that weir_open returned. */
    explicit limiter(::weir *w) noexcept : weir_(w)
    {
    }

    limiter(limiter &&other) noexcept : host_(std::move(other.host_)), weir_(std::exchange(other.weir_, nullptr))
    {
    }

    limiter &operator=(limiter &&other) noexcept
    {
        if (this != &other) {
            close();
            host_ = std::move(other.host_);
            weir_ = std::exchange(other.weir_, nullptr);
        }
        return *this;
    }

    limiter(const limiter &) = delete;
    limiter &operator=(const limiter &) = delete;

    ~limiter()
    {
        close();
    }

    /* weir_open. The result is empty where the call failed. */
    [[nodiscard]] static limiter open(const options &how, error &why) noexcept
    {
        why = error();
        return detail::made_by<limiter>(why, [&] {
            limiter made;
            if (detail::are_terminated_texts(how, why)) {
                made.host_ = std::make_unique<detail::host_functions>(detail::host_functions{how.log, how.clock});
                made.open_as(how, why);
            }
            return made;
        });
    }

    /* weir_close: sends the last reports. The limiter is empty after the call. */
    void close() noexcept
    {
        ::weir_close(std::exchange(weir_, nullptr));
        host_.reset();
    }

    /* weir_leave: reports what is counted, and ends the background thread. Checks may go on. */
    int leave() noexcept
    {
        return ::weir_leave(weir_);
    }

    /* weir_join: once in each forked child, before any other call there. */
    [[nodiscard]] bool join(error &why) noexcept
    {
        why = error();
        return ::weir_join(weir_, why.get()) == 0;
    }

    /* weir_unlink: removes the memory of options.shared_name. */
    static std::error_code unlink(const std::string &name) noexcept
    {
        error why;
        return detail::is_terminated_text("the name", name, why) ? detail::code_of(::weir_unlink(name.c_str()))
                                                                 : why.code();
    }

    explicit operator bool() const noexcept
    {
        return weir_ != nullptr;
    }

    ::weir *get() const noexcept
    {
        return weir_;
    }

    /* weir_set_policies: replaces all policies at once. After an error the old set stays. */
    [[nodiscard]] bool set_policies(const std::vector<policy> &policies, error &why) noexcept
    {
        why = error();
        return detail::made_by<bool>(why, [&] {
            const detail::c_policies set(policies);
            return detail::are_terminated_texts(policies, why) &&
                   ::weir_set_policies(weir_, set.data(), set.size(), why.get()) == 0;
        });
    }

    /* weir_load_policies: set_policies from a YAML file. */
    [[nodiscard]] bool load_policies(const std::string &yaml_path, error &why) noexcept
    {
        why = error();
        return detail::is_terminated_text("the path", yaml_path, why) &&
               ::weir_load_policies(weir_, yaml_path.c_str(), why.get()) == 0;
    }

    /* weir_load_policies_with: the policies of a file and those of the program, in force at once. */
    [[nodiscard]] bool load_policies(const std::string &yaml_path, const std::vector<policy> &policies,
                                     error &why) noexcept
    {
        why = error();
        return detail::made_by<bool>(why, [&] {
            const detail::c_policies set(policies);
            return detail::is_terminated_text("the path", yaml_path, why) &&
                   detail::are_terminated_texts(policies, why) &&
                   ::weir_load_policies_with(weir_, yaml_path.c_str(), set.data(), set.size(), why.get()) == 0;
        });
    }

    /* weir_validate_policies: whether the file could be loaded and has all required policies. Nothing is applied. */
    [[nodiscard]] static bool validate_policies(const std::string &yaml_path, const std::vector<std::string> &required,
                                                error &why) noexcept
    {
        why = error();
        return detail::made_by<bool>(why, [&] {
            const std::vector<const char *> names = detail::c_texts(required);
            return detail::is_terminated_text("the path", yaml_path, why) &&
                   detail::are_terminated_texts("the name of a required policy", required, why) &&
                   ::weir_validate_policies(yaml_path.c_str(), names.data(), names.size(), why.get()) == 0;
        });
    }

    /* weir_set_key_form: how the keys of a policy are written for people. `form` lasts until the limiter is closed. */
    [[nodiscard]] bool set_key_form(const std::string &policy_name, const key_form *form, error &why) noexcept
    {
        why = error();
        return detail::is_terminated_text("the name of a policy", policy_name, why) &&
               ::weir_set_key_form(weir_, policy_name.c_str(), form, why.get()) == 0;
    }

    /* weir_set_override: gives "policy:key" a `value` of its own, such as "allow", "deny" or "200/50". */
    [[nodiscard]] bool set_override(const std::string &name, const std::string &value, error &why) noexcept
    {
        why = error();
        return detail::is_terminated_text("the name of an override", name, why) &&
               detail::is_terminated_text("the value of an override", value, why) &&
               ::weir_set_override(weir_, name.c_str(), value.c_str(), why.get()) == 0;
    }

    /* weir_set_override with NULL: the key is under its policy's limits again. */
    [[nodiscard]] bool remove_override(const std::string &name, error &why) noexcept
    {
        why = error();
        return detail::is_terminated_text("the name of an override", name, why) &&
               ::weir_set_override(weir_, name.c_str(), nullptr, why.get()) == 0;
    }

    /* weir_poll, for no_thread: does what is due, and returns the time after which to call it again; 0 on failure. */
    std::chrono::milliseconds poll(error &why) noexcept
    {
        why = error();
        const int result = ::weir_poll(weir_);
        if (result < 0) {
            why = error(result, "poll: the limiter has a thread of its own; open it with options.no_thread");
        }
        return std::chrono::milliseconds(result > 0 ? result : 0);
    }

    /* weir_poll_fd, for no_thread: the descriptor that a loop waits for; -1 on failure. */
    [[nodiscard]] int poll_fd(error &why) noexcept
    {
        why = error();
        const int result = ::weir_poll_fd(weir_);
        if (result == -EINVAL) {
            why = error(result, "poll_fd: the limiter has a thread of its own; open it with options.no_thread");
        } else if (result < 0) {
            why = error(result, "poll_fd: no descriptor could be made; go by what poll returns, and ask again later");
        }
        return result >= 0 ? result : -1;
    }

#if WEIRPP_EXCEPTIONS
    /* The forms that throw. */
    [[nodiscard]] static limiter open(const options &how = {})
    {
        error why;
        limiter made = open(how, why);
        expect(static_cast<bool>(made), why);
        return made;
    }

    void join()
    {
        error why;
        expect(join(why), why);
    }

    void set_policies(const std::vector<policy> &policies)
    {
        error why;
        expect(set_policies(policies, why), why);
    }

    void load_policies(const std::string &yaml_path)
    {
        error why;
        expect(load_policies(yaml_path, why), why);
    }

    void load_policies(const std::string &yaml_path, const std::vector<policy> &policies)
    {
        error why;
        expect(load_policies(yaml_path, policies, why), why);
    }

    static void validate_policies(const std::string &yaml_path, const std::vector<std::string> &required = {})
    {
        error why;
        expect(validate_policies(yaml_path, required, why), why);
    }

    void set_key_form(const std::string &policy_name, const key_form *form)
    {
        error why;
        expect(set_key_form(policy_name, form, why), why);
    }

    void set_override(const std::string &name, const std::string &value)
    {
        error why;
        expect(set_override(name, value, why), why);
    }

    void remove_override(const std::string &name)
    {
        error why;
        expect(remove_override(name, why), why);
    }

    std::chrono::milliseconds poll()
    {
        error why;
        const std::chrono::milliseconds next = poll(why);
        expect(!why, why);
        return next;
    }

    [[nodiscard]] int poll_fd()
    {
        error why;
        const int descriptor = poll_fd(why);
        expect(!why, why);
        return descriptor;
    }
#endif

    /* weir_find_policy: once per policy, not per request. no_policy: there is none of that name. */
    [[nodiscard]] policy_id find_policy(const std::string &name) const noexcept
    {
        error why;
        return detail::is_terminated_text("the name", name, why) ? ::weir_find_policy(weir_, name.c_str()) : no_policy;
    }

    /*
     * weir_list_policies: calls `each(const policy_info &)`, any callable, for every policy in force, and returns their
     * number. The info is readable until `each` returns; policy::copy_of keeps it. `each` must not call into the
     * limiter. What `each` throws is thrown here, and `each` is not called again.
     */
    template <class Each> std::size_t list_policies(Each &&each) const
    {
        detail::listing<std::remove_reference_t<Each>, policy_info> listing(each);
        const std::size_t count = ::weir_list_policies(weir_, listing.visit, &listing);
        listing.rethrow();
        return count;
    }

    /* weir_list_overrides: calls `each(const override_info &)` for every override, in the way of list_policies. */
    template <class Each> std::size_t list_overrides(Each &&each) const
    {
        detail::listing<std::remove_reference_t<Each>, override_info> listing(each);
        const std::size_t count = ::weir_list_overrides(weir_, listing.visit, &listing);
        listing.rethrow();
        return count;
    }

    /* weir_attach: a handle of the calling thread; empty where max_threads are attached. Allocates nothing. */
    [[nodiscard]] handle attach() const noexcept
    {
        return handle(::weir_attach(weir_));
    }

    /* weir_count_unlimited: counts requests that pass without being asked, as there is no handle. */
    void count_unlimited(std::uint64_t requests) const noexcept
    {
        ::weir_count_unlimited(weir_, requests);
    }

    /*
     * weir_make_key. The key points to `bytes`, which stay readable for as long as the key is used. No bytes: the one
     * key of a policy that has a single global key.
     */
    [[nodiscard]] key make_key(policy_id policy, std::string_view bytes = {}) const noexcept
    {
        return ::weir_make_key(weir_, policy, bytes.data(), bytes.size());
    }

    [[nodiscard]] key make_key(policy_id policy, const void *data, std::size_t length) const noexcept
    {
        return ::weir_make_key(weir_, policy, data, length);
    }

    /* The key would point into a string that is gone after the call: keep the string in a variable. */
    template <class Text, std::enable_if_t<std::is_same_v<Text, std::string>, int> = 0>
    key make_key(policy_id policy, Text &&bytes) const = delete;

    /*
     * weir_reset: clears what a key has used. std::errc::not_connected: in Redis when Redis can be reached.
     * std::errc::timed_out: in Redis later. std::errc::no_such_file_or_directory: the policy is not in the set.
     */
    std::error_code reset(const key &k) noexcept
    {
        return detail::code_of(::weir_reset(weir_, &k));
    }

    /*
     * weir_sync: a full report and its answers. std::errc::timed_out; std::errc::connection_refused: Redis refuses the
     * connection or the login; std::errc::not_connected: there is no fleet.
     */
    std::error_code sync(std::chrono::milliseconds timeout) noexcept
    {
        return detail::code_of(::weir_sync(weir_, timeout.count() > 0 ? detail::field_of(timeout.count()) : 0));
    }

    /* weir_get_stats. duration_of makes durations of its nanoseconds. */
    [[nodiscard]] stats get_stats() const noexcept
    {
        stats now;
        ::weir_get_stats_sized(weir_, &now, sizeof(now));
        return now;
    }

    /* weir_get_policy_stats. False: the policy is not in the present set; its counters are in `out` all the same. */
    bool get_policy_stats(policy_id policy, policy_stats &out) const noexcept
    {
        return ::weir_get_policy_stats(weir_, policy, &out, sizeof(out)) == 0;
    }

    /* weir_top_offenders: the keys that were denied most units of a policy lately. */
    [[nodiscard]] std::vector<offender> top_offenders(policy_id policy) const
    {
        std::vector<offender> found(WEIR_TOP_OFFENDERS);
        found.resize(::weir_top_offenders(weir_, policy, found.data(), found.size()));
        return found;
    }

    std::size_t top_offenders(policy_id policy, offender *out, std::size_t capacity) const noexcept
    {
        return ::weir_top_offenders(weir_, policy, out, capacity);
    }

    /* weir_write_metrics: Prometheus text. */
    [[nodiscard]] std::string write_metrics() const
    {
        return detail::text_by(
            [this](char *buffer, std::size_t size) { return ::weir_write_metrics(weir_, buffer, size); });
    }

    /* weir_write_status: one line of JSON. */
    [[nodiscard]] std::string write_status() const
    {
        return detail::text_by(
            [this](char *buffer, std::size_t size) { return ::weir_write_status(weir_, buffer, size); });
    }

    /* weir_write_headers: HTTP header fields, each line ended by CR LF. Into `buffer` nothing is allocated. */
    [[nodiscard]] std::string write_headers(header_style style, policy_id policy, const verdict &answer) const
    {
        return detail::text_by(
            [&](char *buffer, std::size_t size) { return write_headers(style, policy, answer, buffer, size); });
    }

    /* Returns the bytes that the text needs without the terminator; `size` or more: the text was cut. */
    int write_headers(header_style style, policy_id policy, const verdict &answer, char *buffer,
                      std::size_t size) const noexcept
    {
        return ::weir_write_headers(static_cast<::weir_header_style>(style), weir_, policy, answer.get(), buffer, size);
    }

  private:
#if WEIRPP_EXCEPTIONS
    static void expect(bool good, const error &why)
    {
        if (!good) {
            throw why;
        }
    }
#endif

    void open_as(const options &from, error &why)
    {
        ::weir_options how = WEIR_OPTIONS_INIT;
        const ::weir_clock clock = {from.clock.monotonic ? detail::host_functions::monotonic_ns : nullptr,
                                    from.clock.wall ? detail::host_functions::wall_ns : nullptr, host_.get()};
        how.redis_url = detail::text_or_null(from.redis_url);
        how.prefix = detail::text_or_null(from.prefix);
        how.node_name = detail::text_or_null(from.node_name);
        how.max_keys = from.max_keys;
        how.max_threads = from.max_threads;
        how.sync_interval_ms = detail::field_of(from.sync_interval.count());
        how.redis_timeout_ms = detail::field_of(from.redis_timeout.count());
        how.tick_us = detail::field_of(from.tick.count());
        how.no_thread = from.no_thread;
        how.clock = from.clock.monotonic || from.clock.wall ? &clock : nullptr;
        how.log = from.log ? detail::host_functions::write_log : nullptr;
        how.log_arg = host_.get();
        how.max_log_units = from.max_log_units;
        how.expected_nodes = from.expected_nodes;
        how.fleet_secret = detail::text_or_null(from.fleet_secret);
        how.no_denial_log = from.no_denial_log;
        how.shared = from.shared;
        how.max_processes = from.max_processes;
        how.shared_name = detail::text_or_null(from.shared_name);
        const std::vector<const char *> required = detail::c_texts(from.required_policies);
        how.required_policies = required.data();
        how.required_policy_count = required.size();
        static_cast<void>(::weir_open(&how, &weir_, why.get()));
    }

    std::unique_ptr<detail::host_functions> host_;
    ::weir *weir_ = nullptr;
};

/* weir_version: the version of the library that the program runs with. */
inline const char *version() noexcept
{
    return ::weir_version();
}

/* weir_status_page: the page of HTML that shows what limiter::write_status writes. */
inline std::string_view status_page() noexcept
{
    std::size_t length = 0;
    const char *page = ::weir_status_page(&length);
    return {page, length};
}

/* weir_address_form: keys that are addresses in network byte order; nullptr: there is no form of that prefix. */
inline const key_form *address_form(unsigned ipv6_prefix = 128) noexcept
{
    return ::weir_address_form(ipv6_prefix);
}

/*
 * weir_address_key: the bytes of a client's address, for limiter::make_key, which points to them: keep this object for
 * as long as the key is used.
 *
 *   const weirpp::address_key client(address, 64);
 *   const weirpp::key key = limiter.make_key(api, client.data(), client.size());
 */
class address_key
{
  public:
    explicit address_key(const ::sockaddr *address, unsigned ipv6_prefix = 128) noexcept
        : size_(::weir_address_key(address, ipv6_prefix, bytes_))
    {
    }

    const std::uint8_t *data() const noexcept
    {
        return bytes_;
    }

    std::size_t size() const noexcept
    {
        return size_;
    }

    /* Whether there is an address: no, of a socket of another family. */
    explicit operator bool() const noexcept
    {
        return size_ != 0;
    }

  private:
    std::uint8_t bytes_[16] = {}; /* before size_, which is written with it */
    std::size_t size_;
};

/* weir_network_form: keys that are networks of so many bits; nullptr: there are no such networks. */
inline const key_form *network_form(unsigned ip_version, unsigned prefix) noexcept
{
    return ::weir_network_form(ip_version, prefix);
}

} // namespace weirpp

#endif
