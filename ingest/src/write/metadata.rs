//! Stores the metadata of metric families.

use std::borrow::Cow;

use varve_model::metadata::{
    FAMILY_KEY_SEPARATOR, Families, FamilyKey, METADATA_SIZE_MAX, Metadata,
};
use varve_model::{RejectionReason, TenantLabels};
use varve_tsdb::Db;

use crate::batch::FamilyEntry;
use crate::error::WriteError;
use crate::label_set::excerpt;
use crate::outcome::Rejections;

/// Stores the new metadata entries of a request of a tenant. Adds invalid entries to `rejections`.
pub(crate) fn write(
    db: &Db,
    tenant: &TenantLabels,
    message: &[u8],
    entries: &[FamilyEntry],
    rejections: &mut Rejections,
) -> Result<(), WriteError> {
    let mut families = Vec::new();
    // Version 2.0 sends metadata with every sample, so known metadata must cost no more than a
    // look-up.
    let known = (!entries.is_empty()).then(|| db.metadata());
    for entry in entries {
        if known
            .as_ref()
            .is_some_and(|known| is_known(message, tenant, entry, known))
        {
            continue;
        }
        match parse(message, tenant, entry) {
            Ok(family) => families.push(family),
            Err(invalid) => rejections.add(RejectionReason::InvalidMetadata, 1, 0, || invalid),
        }
    }
    // The store copies the map if it is still shared.
    drop(known);
    if families.is_empty() {
        return Ok(());
    }
    let families = families
        .iter()
        .map(|(key, metadata)| (&**key, metadata.clone()));
    Ok(db.set_metadata(families)?)
}

fn is_known(message: &[u8], tenant: &TenantLabels, entry: &FamilyEntry, known: &Families) -> bool {
    let known = std::str::from_utf8(entry.name.slice(message))
        .ok()
        .and_then(|name| known.get(&*FamilyKey::text(name, tenant)));
    known.is_some_and(|known| {
        let Metadata { kind, help, unit } = &**known;
        kind == entry.kind.name()
            && help.as_bytes() == entry.help.slice(message)
            && unit.as_bytes() == entry.unit.slice(message)
    })
}

/// Parses a metadata entry.
///
/// # Errors
/// A description of the invalid entry.
fn parse<'a>(
    message: &'a [u8],
    tenant: &TenantLabels,
    entry: &FamilyEntry,
) -> Result<(Cow<'a, str>, Metadata), String> {
    let name = entry.name.slice(message);
    let string = |what: &str, bytes: &'a [u8]| {
        std::str::from_utf8(bytes).map_err(|_| format!("{:?}: {what} is not UTF-8", excerpt(name)))
    };
    if name.is_empty() {
        return Err("an entry without metric family name".to_owned());
    }
    let key = FamilyKey::text(string("name", name)?, tenant);
    if name.contains(&(FAMILY_KEY_SEPARATOR as u8)) {
        return Err(format!("{:?}: the name contains NUL", excerpt(name)));
    }
    let kind = entry.kind.name();
    let help = entry.help.slice(message);
    let unit = entry.unit.slice(message);
    let size = key.len() + kind.len() + help.len() + unit.len();
    if size > METADATA_SIZE_MAX {
        return Err(format!(
            "{:?}: {size} bytes exceed {METADATA_SIZE_MAX}",
            excerpt(name)
        ));
    }
    let help = string("help", help)?.to_owned();
    let unit = string("unit", unit)?.to_owned();
    Ok((
        key,
        Metadata {
            kind: kind.to_owned(),
            help,
            unit,
        },
    ))
}
