//! The existing metrics of each job, their number of series, and their labels.

mod metrics;
mod scrapes;
mod stored;

pub use metrics::{Inventory, MetricId, MetricSize};
pub use scrapes::Scrapes;
pub use stored::Stored;
