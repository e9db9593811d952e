//! Nodes to the types of the core.

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, MapAccess, SeqAccess, Unexpected, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::{Key, Mistake, Node, Value};

/// Reads a node as a `T`. Mistakes have their place and path.
pub(crate) fn read<'de, T: Deserialize<'de>>(node: &'de Node) -> Result<T, Mistake> {
    T::deserialize(node)
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Mistake;

    /// Only for what may be of several kinds. The methods below call but the one visitor that fits: the others would be
    /// compiled for every type.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let read = match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(yes) => visitor.visit_bool(*yes),
            Value::Whole(_) | Value::Decimal(_) => return self.deserialize_f64(visitor),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::List(_) => return self.deserialize_seq(visitor),
            Value::Table(_) => return self.deserialize_map(visitor),
        };
        read.map_err(|mistake: Mistake| mistake.at(self.at))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.value {
            Value::Bool(yes) => visitor.visit_bool(yes),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let read = match self.number(&visitor)? {
            Number::Unsigned(number) => visitor.visit_u64(number),
            Number::Signed(number) => visitor.visit_i64(number),
            Number::Decimal(number) => visitor.visit_f64(number),
        };
        read.map_err(|mistake: Mistake| mistake.at(self.at))
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_i16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.value {
            Value::Text(text) => visitor.visit_borrowed_str(text).map_err(|mistake: Mistake| mistake.at(self.at)),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.value {
            Value::List(items) => visitor
                .visit_seq(Items { items: items.iter(), next: 0 })
                .map_err(|mistake: Mistake| mistake.at(self.at)),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.value {
            Value::Table(entries) => visitor
                .visit_map(Entries { entries: entries.iter(), value: None })
                .map_err(|mistake: Mistake| mistake.at(self.at)),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    /// The fields are handed over in the order of their declaration: code that reads a sequence is half of that which reads a
    /// map. A field that is absent ends the sequence for itself alone, and takes its default if it has one.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let fields = self.fields(fields, &visitor)?;
        let names = fields.names.as_slice();
        visitor.visit_seq(fields).map_err(|mistake: Mistake| mistake.of_field(names).at(self.at))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_enum(self.variant()?).map_err(|mistake: Mistake| mistake.at(self.at))
    }

    forward_to_deserialize_any! { i128 u128 f32 char bytes byte_buf unit_struct }
}

/// A number as `serde` takes it.
enum Number {
    Unsigned(u64),
    Signed(i64),
    Decimal(f64),
}

/// What is the same for all types. It is called, and not compiled into the reading of each.
impl Node {
    #[inline(never)]
    fn number(&self, expected: &dyn Expected) -> Result<Number, Mistake> {
        match self.value {
            Value::Whole(number) => match (u64::try_from(number), i64::try_from(number)) {
                (Ok(number), _) => Ok(Number::Unsigned(number)),
                (_, Ok(number)) => Ok(Number::Signed(number)),
                _ => Err(self.unexpected(expected)),
            },
            Value::Decimal(number) => Ok(Number::Decimal(number)),
            _ => Err(self.unexpected(expected)),
        }
    }

    #[inline(never)]
    fn variant(&self) -> Result<Variant<'_>, Mistake> {
        let (name, at, content) = match &self.value {
            Value::Text(name) => (name, self.at, None),
            Value::Table(entries) => match entries.as_slice() {
                [(key, content)] => (&key.name, key.at, Some(content)),
                _ => return Err(Mistake::new("expected a name, or a table with one entry", self.at)),
            },
            _ => return Err(Mistake::new("expected a name, or a table with one entry", self.at)),
        };
        Ok(Variant { name, at, content })
    }

    /// Another kind of value than is wanted.
    #[cold]
    fn unexpected(&self, expected: &dyn Expected) -> Mistake {
        let found = match &self.value {
            Value::Null => Unexpected::Unit,
            Value::Bool(yes) => Unexpected::Bool(*yes),
            Value::Whole(number) => match u64::try_from(*number) {
                Ok(number) => Unexpected::Unsigned(number),
                Err(_) => Unexpected::Signed(i64::try_from(*number).unwrap_or(i64::MIN)),
            },
            Value::Decimal(number) => Unexpected::Float(*number),
            Value::Text(text) => Unexpected::Str(text),
            Value::List(_) => Unexpected::Seq,
            Value::Table(_) => Unexpected::Map,
        };
        Mistake::invalid_type(found, expected).at(self.at)
    }

    /// What there is of these fields. Refuses a field that is not among them, and one that is there twice.
    fn fields<'de>(&'de self, names: &'static [&'static str], expected: &dyn Expected) -> Result<Fields<'de>, Mistake> {
        let Value::Table(entries) = &self.value else { return Err(self.unexpected(expected)) };
        for (nth, (key, _)) in entries.iter().enumerate() {
            let Some(name) = names.iter().find(|name| **name == key.name) else {
                return Err(Mistake::unknown_field(&key.name, names).at(key.at));
            };
            // There are no more fields than names before one comes twice.
            if entries[..nth].iter().any(|(earlier, _)| earlier.name == key.name) {
                return Err(Mistake::duplicate_field(name).at(key.at));
            }
        }
        Ok(Fields { names: names.iter(), entries })
    }
}

/// The fields of a struct, in the order of their declaration.
struct Fields<'de> {
    names: std::slice::Iter<'static, &'static str>,
    entries: &'de [(Key, Node)],
}

impl<'de> Fields<'de> {
    #[inline(never)]
    fn next(&mut self) -> Option<(&'static str, &'de Node)> {
        let name = self.names.next()?;
        let (_, value) = self.entries.iter().find(|(key, _)| key.name == *name)?;
        Some((name, value))
    }
}

impl<'de> SeqAccess<'de> for Fields<'de> {
    type Error = Mistake;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mistake> {
        let Some((name, value)) = self.next() else { return Ok(None) };
        seed.deserialize(value).map(Some).map_err(|mistake| mistake.inside(name))
    }
}

/// A name as a value: that of a key, or of a variant.
struct Name<'de> {
    name: &'de str,
    at: usize,
}

impl<'de> Deserializer<'de> for Name<'de> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_borrowed_str(self.name).map_err(|mistake: Mistake| mistake.at(self.at))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct Items<'de> {
    items: std::slice::Iter<'de, Node>,
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Mistake;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mistake> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let nth = self.next;
        self.next += 1;
        seed.deserialize(item).map(Some).map_err(|mistake| mistake.inside_item(nth))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Entries<'de> {
    entries: std::slice::Iter<'de, (Key, Node)>,
    value: Option<&'de (Key, Node)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Mistake;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mistake> {
        self.value = self.entries.next();
        let Some((key, _)) = self.value else { return Ok(None) };
        seed.deserialize(Name { name: &key.name, at: key.at }).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Mistake> {
        let Some((key, value)) = self.value.take() else { return Err(Mistake::custom("a value without a key")) };
        seed.deserialize(value).map_err(|mistake| mistake.inside(&key.name))
    }
}

struct Variant<'de> {
    name: &'de str,
    at: usize,
    content: Option<&'de Node>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Mistake;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Mistake> {
        seed.deserialize(Name { name: self.name, at: self.at }).map(|value| (value, self))
    }
}

impl<'de> Variant<'de> {
    fn content(self) -> Result<&'de Node, Mistake> {
        let missing = || Mistake::new(["`", self.name, "` needs a value"].concat(), self.at);
        self.content.ok_or_else(missing)
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Mistake;

    fn unit_variant(self) -> Result<(), Mistake> {
        match self.content {
            Some(Node { at, value }) if !matches!(value, Value::Null) => {
                Err(Mistake::new(["`", self.name, "` takes no value"].concat(), *at))
            }
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Mistake> {
        let name = self.name;
        seed.deserialize(self.content()?).map_err(|mistake| mistake.inside(name))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Mistake> {
        self.content()?.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Mistake> {
        let name = self.name;
        self.content()?.deserialize_struct("", fields, visitor).map_err(|mistake| mistake.inside(name))
    }
}
