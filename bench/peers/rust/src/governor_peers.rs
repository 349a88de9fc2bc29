// SPDX-License-Identifier: Apache-2.0
//! governor: GCRA on an atomic word; with keys one word for each, in dashmap, a hash table of shards behind locks. By
//! default it reads the processor's time stamp counter and hashes by SipHash. Where its users measure they give it a
//! clock that a thread of quanta's keeps up, and one of the fast keyed hashes.

use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock, QuantaUpkeepClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use crate::{give, Draws, Limit};

/// As often as weir's own tick.
const UPKEEP: Duration = Duration::from_millis(1);

type Middleware<C> = NoOpMiddleware<<C as Clock>::Instant>;
type Direct<C> = RateLimiter<NotKeyed, InMemoryState, C, Middleware<C>>;
type Keyed<S, C> = RateLimiter<[u8; 16], DashMapStateStore<[u8; 16], S>, C, Middleware<C>>;

fn quota(limit: &Limit) -> Option<Quota> {
    let burst = NonZeroU32::new(u32::try_from(limit.burst).ok()?)?;
    Some(Quota::with_period(Duration::from_nanos(limit.period_ns / limit.units))?.allow_burst(burst))
}

/// None while another one is kept up: there is one thread for all.
fn upkept() -> Option<QuantaUpkeepClock> {
    QuantaUpkeepClock::from_interval(UPKEEP).ok()
}

fn direct<C: Clock>(limit: &Limit, clock: Option<C>) -> *mut c_void {
    give(quota(limit).zip(clock).map(|(quota, clock)| Direct::<C>::direct_with_clock(quota, clock)))
}

fn keyed<S: BuildHasher + Clone + Default, C: Clock>(limit: &Limit, clock: Option<C>) -> *mut c_void {
    let state = DashMapStateStore::with_hasher(S::default());
    give(quota(limit).zip(clock).map(|(quota, clock)| Keyed::<S, C>::new(quota, state, clock)))
}

unsafe fn run_direct<C: Clock>(object: *const c_void, count: u64) -> u64 {
    let limiter = &*object.cast::<Direct<C>>();
    (0..count).map(|_| u64::from(limiter.check().is_ok())).sum()
}

unsafe fn run_keyed<S: BuildHasher + Clone, C: Clock>(object: *const c_void, draws: *mut Draws, count: u64) -> u64 {
    let limiter = &*object.cast::<Keyed<S, C>>();
    let draws = &mut *draws;
    (0..count).map(|_| u64::from(limiter.check_key(&draws.next_key()).is_ok())).sum()
}

/// The C functions of a limiter without keys.
macro_rules! direct_peer {
    ($new:ident, $run:ident, $free:ident, $clock:ty, $made:expr) => {
        #[no_mangle]
        pub unsafe extern "C" fn $new(limit: *const Limit) -> *mut c_void {
            direct::<$clock>(&*limit, $made)
        }

        #[no_mangle]
        pub unsafe extern "C" fn $run(object: *const c_void, _: *mut Draws, count: u64) -> u64 {
            run_direct::<$clock>(object, count)
        }

        #[no_mangle]
        pub unsafe extern "C" fn $free(object: *mut c_void) {
            drop(Box::from_raw(object.cast::<Direct<$clock>>()));
        }
    };
}

/// The C functions of a limiter of keys, by this hash.
macro_rules! keyed_peer {
    ($new:ident, $run:ident, $free:ident, $hash:ty, $clock:ty, $made:expr) => {
        #[no_mangle]
        pub unsafe extern "C" fn $new(limit: *const Limit) -> *mut c_void {
            keyed::<$hash, $clock>(&*limit, $made)
        }

        #[no_mangle]
        pub unsafe extern "C" fn $run(object: *const c_void, draws: *mut Draws, count: u64) -> u64 {
            run_keyed::<$hash, $clock>(object, draws, count)
        }

        #[no_mangle]
        pub unsafe extern "C" fn $free(object: *mut c_void) {
            drop(Box::from_raw(object.cast::<Keyed<$hash, $clock>>()));
        }
    };
}

direct_peer!(
    peer_rust_governor_new,
    peer_rust_governor_run,
    peer_rust_governor_free,
    DefaultClock,
    Some(DefaultClock::default())
);
direct_peer!(
    peer_rust_governor_upkeep_new,
    peer_rust_governor_upkeep_run,
    peer_rust_governor_upkeep_free,
    QuantaUpkeepClock,
    upkept()
);
keyed_peer!(
    peer_rust_governor_keyed_new,
    peer_rust_governor_keyed_run,
    peer_rust_governor_keyed_free,
    RandomState,
    DefaultClock,
    Some(DefaultClock::default())
);
keyed_peer!(
    peer_rust_governor_ahash_new,
    peer_rust_governor_ahash_run,
    peer_rust_governor_ahash_free,
    ahash::RandomState,
    QuantaUpkeepClock,
    upkept()
);
keyed_peer!(
    peer_rust_governor_fold_new,
    peer_rust_governor_fold_run,
    peer_rust_governor_fold_free,
    foldhash::fast::RandomState,
    QuantaUpkeepClock,
    upkept()
);
