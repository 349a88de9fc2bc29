// SPDX-License-Identifier: Apache-2.0
//! Limitador: a fixed window per key, found by an expression over the request's values. Its counters are in memory, or
//! in Redis behind a cache of its own that tells it of them in the background.

use std::collections::HashMap;
use std::ffi::{c_char, c_void, CStr};

use limitador::limit::{Context, Namespace};
use limitador::storage::redis::CachedRedisStorageBuilder;
use limitador::{AsyncRateLimiter, RateLimiter};
use tokio::runtime::{Builder, Runtime};

use crate::{give, Draws, Limit};

const NAMESPACE: &str = "weir";
const KEY: &str = "key";

/// Its periods are whole seconds, and there is no burst beside the limit.
fn definition(limit: &Limit) -> Option<limitador::limit::Limit> {
    let seconds = limit.period_ns / 1_000_000_000;
    let key = KEY.try_into().ok()?;
    (seconds != 0).then(|| limitador::limit::Limit::new(NAMESPACE, limit.units, seconds, vec![], vec![key]))
}

/// A request's values, as a server would have to make them.
fn values(draws: &mut Draws) -> Context<'static> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(32);
    for byte in draws.next_key() {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    HashMap::from([(KEY.to_owned(), text)]).into()
}

struct InMemory {
    limiter: RateLimiter,
    namespace: Namespace,
}

/// With room for twice as many keys, so that none gives way.
#[no_mangle]
pub unsafe extern "C" fn peer_rust_limitador_new(limit: *const Limit, key_count: usize) -> *mut c_void {
    give(definition(&*limit).map(|definition| {
        let limiter = RateLimiter::new(2 * key_count as u64);
        limiter.add_limit(definition);
        InMemory { limiter, namespace: NAMESPACE.into() }
    }))
}

#[no_mangle]
pub unsafe extern "C" fn peer_rust_limitador_run(object: *const c_void, draws: *mut Draws, count: u64) -> u64 {
    let InMemory { limiter, namespace } = &*object.cast::<InMemory>();
    let draws = &mut *draws;
    (0..count)
        .map(|_| limiter.check_rate_limited_and_update(namespace, &values(draws), 1))
        .map(|result| u64::from(result.is_ok_and(|result| !result.limited)))
        .sum()
}

#[no_mangle]
pub unsafe extern "C" fn peer_rust_limitador_free(object: *mut c_void) {
    drop(Box::from_raw(object.cast::<InMemory>()));
}

struct Cached {
    limiter: AsyncRateLimiter,
    namespace: Namespace,
    runtime: Runtime,
}

fn cached(limit: &Limit, key_count: usize, url: &str) -> Option<Cached> {
    let definition = definition(limit)?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().ok()?;
    let storage = CachedRedisStorageBuilder::new(url).max_cached_counters(2 * key_count.max(1000));
    let storage = runtime.block_on(storage.build()).ok()?;
    let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage));
    limiter.add_limit(definition);
    Some(Cached { limiter, namespace: NAMESPACE.into(), runtime })
}

/// # Safety
/// As the others, and `url` is a string.
#[no_mangle]
pub unsafe extern "C" fn peer_rust_limitador_cached_new(
    limit: *const Limit,
    key_count: usize,
    url: *const c_char,
) -> *mut c_void {
    let url = CStr::from_ptr(url).to_str();
    give(url.ok().and_then(|url| cached(&*limit, key_count, url)))
}

#[no_mangle]
pub unsafe extern "C" fn peer_rust_limitador_cached_run(object: *const c_void, draws: *mut Draws, count: u64) -> u64 {
    let Cached { limiter, namespace, runtime } = &*object.cast::<Cached>();
    let draws = &mut *draws;
    runtime.block_on(async {
        let mut allowed = 0;
        for _ in 0..count {
            let result = limiter.check_rate_limited_and_update(namespace, &values(draws), 1).await;
            allowed += u64::from(result.is_ok_and(|result| !result.limited));
        }
        allowed
    })
}

#[no_mangle]
pub unsafe extern "C" fn peer_rust_limitador_cached_free(object: *mut c_void) {
    drop(Box::from_raw(object.cast::<Cached>()));
}
