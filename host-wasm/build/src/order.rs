//! Functions side by side with those that look like them.
//!
//! What servers send is compressed, and `gzip` finds what it has seen before within the last 32 KiB only. The code of one generic
//! function for many types is nearly the same each time; the linker puts it wherever it comes. In an order of their likeness the
//! same functions are smaller by 2 to 4 % as they are sent.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;

use anyhow::{Context, Result};
use wasm_encoder::reencode::{Error, Reencode};
use wasm_encoder::{CodeSection, FunctionSection};
use wasmparser::{CodeSectionReader, FunctionSectionReader, Parser, Payload, TypeRef};

/// Bytes that functions have in common, at least, to count as alike.
const PIECE: usize = 6;
/// What more functions have in common says little of each.
const COMMON: usize = 60;
/// The functions to which the next one is to be alike: as many as `gzip` looks back, or so.
const LOOK_BACK: usize = 40;

/// The same module, with its functions in an order in which it compresses better. O(size + functions^2): for 3000 functions in
/// 500 KB, half a second.
pub(crate) fn order_functions(wasm: &[u8]) -> Result<Vec<u8>> {
    let (mut bodies, mut imported) = (Vec::new(), 0);
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.context("reading the module failed")? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    imported += u32::from(matches!(import?.ty, TypeRef::Func(_)));
                }
            }
            Payload::CodeSectionEntry(body) => bodies.push(body.as_bytes()),
            _ => {}
        }
    }
    let order = by_likeness(&bodies);
    let mut places = vec![0; order.len()];
    for (place, nth) in (0..).zip(&order) {
        places[*nth] = place;
    }
    let mut ordered = wasm_encoder::Module::new();
    let mut reordering = Reordering { order, places, imported };
    reordering.parse_core_module(&mut ordered, Parser::new(0), wasm).context("ordering the functions failed")?;
    Ok(ordered.finish())
}

/// Begins with the largest, and goes on with that which has most in common with the last ones, for its size.
fn by_likeness(bodies: &[&[u8]]) -> Vec<usize> {
    let mut pieces: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (nth, body) in bodies.iter().enumerate() {
        for piece in body.windows(PIECE) {
            let owners = pieces.entry(piece).or_default();
            if owners.last() != Some(&nth) {
                owners.push(nth);
            }
        }
    }
    pieces.retain(|_, owners| (2..=COMMON).contains(&owners.len()));
    let mut left: Vec<bool> = vec![true; bodies.len()];
    let mut likeness = vec![0_u64; bodies.len()];
    let (mut order, mut recent) = (Vec::with_capacity(bodies.len()), VecDeque::new());
    // What fewer have in common counts for more.
    let weigh = |nth: usize, likeness: &mut [u64], add: fn(u64, u64) -> u64| {
        let mut seen: Vec<&[u8]> = bodies[nth].windows(PIECE).collect();
        seen.sort_unstable();
        seen.dedup();
        for owners in seen.into_iter().filter_map(|piece| pieces.get(piece)) {
            for owner in owners {
                likeness[*owner] = add(likeness[*owner], 27_720 / owners.len() as u64);
            }
        }
    };
    while order.len() < bodies.len() {
        let best = (0..bodies.len()).filter(|nth| left[*nth]).max_by_key(|nth| {
            let size = bodies[*nth].len() as u64;
            // Of those that are like nothing, the largest. The square root: neither the short ones first nor the long ones.
            (likeness[*nth] * 1_000 / (size + 60).isqrt(), size, Reverse(*nth))
        });
        let Some(next) = best else { break };
        left[next] = false;
        order.push(next);
        recent.push_back(next);
        weigh(next, &mut likeness, |sum, weight| sum + weight);
        if recent.len() > LOOK_BACK
            && let Some(old) = recent.pop_front()
        {
            weigh(old, &mut likeness, |sum, weight| sum - weight);
        }
    }
    order
}

struct Reordering {
    /// The functions by their new places.
    order: Vec<usize>,
    /// The same the other way round.
    places: Vec<u32>,
    /// Imported functions are counted first, and stay.
    imported: u32,
}

impl Reencode for Reordering {
    type Error = Infallible;

    fn function_index(&mut self, function: u32) -> Result<u32, Error> {
        let defined = function.checked_sub(self.imported);
        Ok(defined.map_or(function, |nth| self.imported + self.places[nth as usize]))
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), Error> {
        let types = section.into_iter().collect::<Result<Vec<_>, _>>()?;
        for nth in &self.order {
            functions.function(types[*nth]);
        }
        Ok(())
    }

    fn parse_code_section(&mut self, code: &mut CodeSection, section: CodeSectionReader<'_>) -> Result<(), Error> {
        let bodies = section.into_iter().collect::<Result<Vec<_>, _>>()?;
        for nth in self.order.clone() {
            self.parse_function_body(code, bodies[nth].clone())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wasm_encoder::{
        ConstExpr, ElementSection, Elements, EntityType, ExportKind, ExportSection, Function, ImportSection,
        Instruction, Module, RefType, TableSection, TableType, TypeSection,
    };
    use wasmparser::{ElementItems, Operator};

    use super::*;

    /// A module that imports one function and has `count`. The n-th answers n, by way of a call of the one before it, and of the
    /// imported one; some look alike and are far from one another.
    fn module(count: u32) -> Vec<u8> {
        let mut types = TypeSection::new();
        types.ty().function([], []);
        types.ty().function([], [wasm_encoder::ValType::I32]);
        let mut imports = ImportSection::new();
        imports.import("host", "hook", EntityType::Function(0));
        let (mut functions, mut exports, mut code) = (FunctionSection::new(), ExportSection::new(), CodeSection::new());
        for nth in 0..count {
            functions.function(1);
            exports.export(&format!("f{nth}"), ExportKind::Func, 1 + nth);
            let mut body = Function::new([]);
            for step in 0..nth % 3 * 20 {
                body.instruction(&Instruction::I32Const((nth % 3 * 1000 + step).cast_signed()))
                    .instruction(&Instruction::Drop);
            }
            body.instruction(&Instruction::Call(0));
            if nth > 0 {
                body.instruction(&Instruction::Call(nth)).instruction(&Instruction::Drop);
            }
            body.instruction(&Instruction::I32Const(nth.cast_signed())).instruction(&Instruction::End);
            code.function(&body);
        }
        let mut tables = TableSection::new();
        let size = u64::from(count);
        tables.table(TableType {
            element_type: RefType::FUNCREF,
            table64: false,
            minimum: size,
            maximum: None,
            shared: false,
        });
        let mut elements = ElementSection::new();
        let all = (1..=count).collect::<Vec<_>>();
        elements.active(None, &ConstExpr::i32_const(0), Elements::Functions(all.into()));
        let mut module = Module::new();
        module.section(&types).section(&imports).section(&functions).section(&tables).section(&exports);
        module.section(&elements).section(&code);
        module.finish()
    }

    /// Of each function in its place: the number it answers, and the indices it calls.
    fn bodies(wasm: &[u8]) -> Vec<(i32, Vec<u32>)> {
        let entries = Parser::new(0).parse_all(wasm).filter_map(|payload| match payload.expect("a section") {
            Payload::CodeSectionEntry(body) => Some(body),
            _ => None,
        });
        let read = |body: wasmparser::FunctionBody<'_>| {
            let (mut answer, mut calls) = (-1, Vec::new());
            for operator in body.get_operators_reader().expect("a body") {
                match operator.expect("an instruction") {
                    Operator::I32Const { value } => answer = value,
                    Operator::Call { function_index } => calls.push(function_index),
                    _ => {}
                }
            }
            (answer, calls)
        };
        entries.map(read).collect()
    }

    #[test]
    fn functions_change_places_and_every_call_export_and_table_entry_still_means_the_same_function() {
        let ordered = order_functions(&module(60)).expect("it is a module");
        let bodies = bodies(&ordered);
        let answer_of = |index: u32| bodies[index as usize - 1].0;
        assert_ne!(bodies.iter().map(|(answer, _)| *answer).collect::<Vec<_>>(), (0..60).collect::<Vec<_>>());
        for (answer, calls) in &bodies {
            let (hook, before) = calls.split_first().expect("each calls the imported function");
            assert_eq!(*hook, 0);
            assert_eq!(
                before.iter().map(|index| answer_of(*index)).collect::<Vec<_>>(),
                Vec::from_iter((*answer > 0).then(|| answer - 1))
            );
        }
        for payload in Parser::new(0).parse_all(&ordered) {
            match payload.expect("a section") {
                Payload::ExportSection(exports) => {
                    for export in exports.into_iter().map(|export| export.expect("an export")) {
                        assert_eq!(export.name, format!("f{}", answer_of(export.index)));
                    }
                }
                Payload::ElementSection(elements) => {
                    for element in elements.into_iter().map(|element| element.expect("an element")) {
                        let ElementItems::Functions(items) = element.items else { panic!("functions are listed") };
                        let answers = items.into_iter().map(|index| answer_of(index.expect("an index")));
                        assert!(answers.eq(0..60));
                    }
                }
                _ => {}
            }
        }
    }

    #[test]
    fn functions_that_look_alike_come_to_stand_side_by_side() {
        let ordered = order_functions(&module(60)).expect("it is a module");
        let kinds: Vec<_> = bodies(&ordered).iter().map(|(answer, _)| answer % 3).collect();
        let changes = kinds.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= 4, "{kinds:?}");
        assert_eq!(order_functions(&ordered).expect("it is a module").len(), ordered.len());
    }

    #[test]
    fn what_is_no_module_is_refused() {
        for text in [&b"not wasm"[..], b"", b"\0asm\x01\0\0\0\x0a\xff"] {
            assert!(order_functions(text).is_err(), "{text:?}");
        }
    }
}
