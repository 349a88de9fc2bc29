#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <weir/weir.hpp>

using namespace std::chrono_literals;

int main()
{
    try {
        weirpp::options options; /* options.redis_url = "redis://10.0.0.5" shares the limits */
        options.node_name = "edge-1";
        weirpp::limiter limiter = weirpp::limiter::open(options);
        limiter.set_policies({{"api", {weirpp::limit::token_bucket(100, 1s, 20)}}});
        const weirpp::policy_id api = limiter.find_policy("api");

        std::thread worker([&limiter, api] {
            weirpp::handle handle = limiter.attach(); /* once in each thread */
            const std::string address = "198.51.100.7";
            const weirpp::key key = limiter.make_key(api, address);
            for (int i = 0; i < 25; i++) {
                weirpp::verdict verdict;
                if (handle.check(key, verdict)) {
                    std::printf("served, %llu left\n", static_cast<unsigned long long>(verdict.remaining()));
                } else {
                    const std::chrono::duration<double, std::milli> wait = verdict.retry_after();
                    std::printf("refused, try again in %.1f ms\n", wait.count());
                }
            }
        });
        worker.join();
    } catch (const weirpp::error &problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
}
