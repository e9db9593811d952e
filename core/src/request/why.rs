//! What a controller can tell about why nothing goes out.

use alloc::format;

use super::admission::RequestAdmission;
use super::keys::ResourceId;
use crate::observe::CallStanding;
use crate::time::Instant;

/// Facts.
impl RequestAdmission {
    /// How a resource stands at `now`, for a [`RunAccount`](crate::observe::RunAccount); `None` for one that this controller
    /// never made. Changes nothing.
    #[must_use]
    pub fn standing(&self, now: Instant, resource: ResourceId) -> Option<CallStanding> {
        let (state, model) = (self.snapshot(now, resource)?, self.owner(resource)?);
        Some(CallStanding {
            resource,
            model,
            name: format!("{}/{}/{}", state.provider, state.model, state.domain),
            cap: state.provider_cap,
            clamp: self.settings(resource)?.max_limit,
            limit: state.current_limit,
            in_flight: state.in_flight,
            waiters: state.waiters,
            blocked_until: state.blocked_until,
        })
    }
}
