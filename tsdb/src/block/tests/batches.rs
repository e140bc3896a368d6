//! Batches that other threads encoded, and copies under another origin.

use super::*;
use crate::block::SeriesBatch;

/// Writes the series of a model in batches of `batch_len` series, the first `n_single` one by one.
fn write_batches(dir: &Path, hours: i64, model: &Model, n_single: usize, batch_len: usize) {
    let window = origin(hours).window;
    let mut writer = BlockWriter::create(Arc::new(RealFs), dir, origin(hours)).unwrap();
    let name = writer.symbol("__name__", "m").unwrap();
    let mut values = Vec::new();
    for i in 0..model.len() {
        values.push(writer.symbol("n", &format!("{i:06}")).unwrap());
    }
    let (single, others) = model.split_at(n_single);
    for (samples, &value) in single.iter().zip(&values) {
        writer.series(&[name, value], samples).unwrap();
    }
    let mut values = values[n_single..].iter();
    for some in others.chunks(batch_len) {
        let mut batch = SeriesBatch::new(window);
        for (samples, &value) in some.iter().zip(&mut values) {
            batch.push([name, value].into_iter(), samples);
        }
        writer.batch(batch).unwrap();
    }
    writer.finish().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn batches_give_the_block_of_single_series(
        (hours, recipes) in any_model(), batch_len in 1..50_usize, n_single: usize,
    ) {
        let model: Model = recipes.iter().map(|recipe| recipe.samples(hours)).collect();
        let single = written(hours, &model);
        let dir = tempfile::tempdir().unwrap();
        write_batches(dir.path(), hours, &model, n_single % (model.len() + 1), batch_len);
        let block = open(&dir.path().join("00000007.block")).unwrap();
        let meta = block.meta();
        prop_assert_eq!((meta.n_series, meta.n_samples), (single.meta.n_series, single.meta.n_samples));
        prop_assert_eq!((meta.range, &meta.origin), (single.meta.range, &single.meta.origin));
        check_scan(&block, &model);
        block.verify(&QueryContext::unbounded()).unwrap();
    }
}

/// All series of a batch are in groups of 256, as if they were written one by one.
#[test]
fn a_batch_of_full_groups_takes_as_many_bytes_as_single_series() {
    let model: Model = (0..512)
        .map(|i| columns((0..30).map(|k| (START_MS + i % 7 + k * 15_000, (i * k) as f64))))
        .collect();
    let single = written(2, &model);
    let dir = tempfile::tempdir().unwrap();
    write_batches(dir.path(), 2, &model, 0, 512);
    let block = open(&dir.path().join("00000007.block")).unwrap();
    assert_eq!(block.meta(), &single.meta);
    assert_eq!(block.groups.len(), 2);
    check_scan(&block, &model);
}

#[test]
fn a_copy_has_the_pages_and_another_origin() {
    let model: Model = (0..300)
        .map(|i| columns((0..30).map(|k| (START_MS + i + k * 15_000, k as f64))))
        .collect();
    let Written { dir, path, meta } = written(2, &model);
    let block = open(&path).unwrap();
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let copied = BlockOrigin {
        id: BlockId(9),
        flushes: (70_000, 70_000),
        sources: Vec::new(),
        ..origin(2)
    };
    let mut n_written = 0;
    block
        .copy_verified(&fs, dir.path(), copied.clone(), |size| n_written = size)
        .unwrap();
    let copy_path = dir.path().join("00000009.block");
    let copy = open(&copy_path).unwrap();
    assert_eq!(n_written, copy.footer.offset);
    let pages = |path: &Path| std::fs::read(path).unwrap()[..block.footer.offset as usize].to_vec();
    assert!(pages(&copy_path) == pages(&path));
    let expected = BlockMeta {
        origin: copied.clone(),
        size: std::fs::metadata(&copy_path).unwrap().len(),
        ..meta
    };
    assert_eq!(copy.meta(), &expected);
    check_scan(&copy, &model);
    copy.verify(&QueryContext::unbounded()).unwrap();
    let again = block.copy_verified(&fs, dir.path(), copied, |_| {});
    assert!(again.is_err(), "a block is never overwritten");
}

/// Every byte is verified before the copy gets its name.
#[test]
fn a_damaged_block_is_not_copied() {
    let model: Model = (0..40)
        .map(|i| columns((0..30).map(|k| (START_MS + i + k * 15_000, k as f64))))
        .collect();
    let Written {
        path,
        meta,
        dir: _dir,
    } = written(2, &model);
    let bytes = std::fs::read(&path).unwrap();
    for at in (0..meta.size as usize).step_by(29) {
        let dir = tempfile::tempdir().unwrap();
        let damaged_path = dir.path().join("damaged");
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        std::fs::write(&damaged_path, damaged).unwrap();
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let copied = open(&damaged_path)
            .and_then(|block| block.copy_verified(&fs, dir.path(), origin(2), |_| {}));
        assert!(copied.is_err(), "byte {at}");
        assert_eq!(fs.list(dir.path()).unwrap(), ["damaged"], "byte {at}");
    }
}
