//! The micro-sliced paper's scheduling results (MICRO'14).

use super::{Extent, ReproduceError, Reproduced};

/// `None`: not one of this paper's.
pub fn reproduce(_id: &str, _extent: &Extent) -> Option<Result<Reproduced, ReproduceError>> {
    None
}
