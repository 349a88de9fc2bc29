// SPDX-License-Identifier: Apache-2.0
//! Nothing, under the names that Limitador's disk storage uses. Its Redis storage does not compile without that one
//! (0.7 to 0.14), and RocksDB takes a quarter of an hour to compile. No database can be opened.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

#[derive(Debug)]
pub enum Error {}

#[derive(PartialEq, Eq)]
pub enum ErrorKind {
    TimedOut,
    TryAgain,
}

impl Error {
    pub fn kind(&self) -> ErrorKind {
        match *self {}
    }
}

impl fmt::Display for Error {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl std::error::Error for Error {}

pub enum CompactionDecision {
    Keep,
    Remove,
}

pub enum DBCompressionType {
    Bz2,
    None,
}

pub enum IteratorMode {
    Start,
}

/// What an operator would merge.
pub struct MergeOperands(());

impl<'a> IntoIterator for &'a MergeOperands {
    type Item = &'a [u8];
    type IntoIter = std::iter::Empty<&'a [u8]>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::empty()
    }
}

#[derive(Default)]
pub struct Options(());

impl Options {
    pub fn create_if_missing(&mut self, _: bool) {}

    pub fn set_compression_type(&mut self, _: DBCompressionType) {}

    pub fn set_compaction_filter<F>(&mut self, _: &str, _: F)
    where
        F: FnMut(u32, &[u8], &[u8]) -> CompactionDecision,
    {
    }

    pub fn set_merge_operator_associative<F>(&mut self, _: &str, _: F)
    where
        F: Fn(&[u8], Option<&[u8]>, &MergeOperands) -> Option<Vec<u8>>,
    {
    }
}

pub enum MultiThreaded {}

enum Never {}

pub struct DBWithThreadMode<T> {
    never: Never,
    mode: PhantomData<T>,
}

pub type DB = DBWithThreadMode<MultiThreaded>;

type Entries = std::iter::Empty<Result<(Box<[u8]>, Box<[u8]>), Error>>;

impl<T> DBWithThreadMode<T> {
    pub fn open(_: &Options, _: impl AsRef<Path>) -> Result<Self, Error> {
        unimplemented!("there is no RocksDB here")
    }

    pub fn get(&self, _: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        match self.never {}
    }

    pub fn merge(&self, _: impl AsRef<[u8]>, _: impl AsRef<[u8]>) -> Result<(), Error> {
        match self.never {}
    }

    pub fn delete(&self, _: impl AsRef<[u8]>) -> Result<(), Error> {
        match self.never {}
    }

    pub fn iterator(&self, _: IteratorMode) -> Entries {
        match self.never {}
    }

    pub fn prefix_iterator(&self, _: impl AsRef<[u8]>) -> Entries {
        match self.never {}
    }
}
