//! Background threads of an open store: flushing, merging and syncing the WAL.

mod label_order;
mod replay;
mod tasks;

#[cfg(test)]
pub(crate) use label_order::LabelOrder;
pub(crate) use replay::{ReplaySource, Replayer, replay};
pub(crate) use tasks::BackgroundTasks;
