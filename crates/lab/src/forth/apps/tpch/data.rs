// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data for the tables of TPC-H: the numbers of rows, keys and ranges of values of its
//! specification (section 4.2); comments are shorter.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::forth::scattered;

/// Rows at scale factor 1.
const SUPPLIERS: u64 = 10_000;
const CUSTOMERS: u64 = 150_000;
const PARTS: u64 = 200_000;
const ORDERS: u64 = 1_500_000;

/// Days since 1992-01-01: the last one of an order (1998-08-02), and that on which the database
/// stands (1995-06-17).
const ORDERED_LAST: u64 = 2405;
const TODAY: u64 = 1263;

const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];

/// With their regions.
const NATIONS: [(&str, u64); 25] = [
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
];

const SEGMENTS: [&str; 5] = ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"];
const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
const INSTRUCTIONS: [&str; 4] = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"];
const MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"];
const TYPES: [&[&str]; 3] = [
    &["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"],
    &["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"],
    &["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"],
];
const CONTAINERS: [&[&str]; 2] = [
    &["SM", "LG", "MED", "JUMBO", "WRAP"],
    &["CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"],
];

/// Writes a file for each table below `folder`: one of `scale` of the rows of scale factor 1.
pub(super) fn write(folder: &Path, scale: u64) -> std::io::Result<()> {
    let mut dice = Dice(scale << 40);
    let suppliers = (SUPPLIERS / scale).max(4);
    let (customers, parts) = ((CUSTOMERS / scale).max(3), (PARTS / scale).max(1));
    let table =
        |name: &str| Ok::<_, std::io::Error>(BufWriter::new(File::create(folder.join(name))?));
    let mut file = table("region")?;
    for (key, name) in REGIONS.iter().enumerate() {
        writeln!(file, "{key}|{name}|a region")?;
    }
    file.flush()?;
    let mut file = table("nation")?;
    for (key, (name, region)) in NATIONS.iter().enumerate() {
        writeln!(file, "{key}|{name}|{region}|a nation")?;
    }
    file.flush()?;
    let mut file = table("supplier")?;
    for key in 1..=suppliers {
        let (nation, balance) = (dice.below(25), dice.balance());
        let phone = phone(nation, key);
        let name = format!("Supplier#{key:09}");
        writeln!(file, "{key}|{name}|street {key}|{nation}|{phone}|{balance}|sells parts")?;
    }
    file.flush()?;
    let mut file = table("customer")?;
    for key in 1..=customers {
        let (nation, balance, segment) = (dice.below(25), dice.balance(), dice.one(&SEGMENTS));
        let phone = phone(nation, key);
        let name = format!("Customer#{key:09}");
        writeln!(file, "{key}|{name}|way {key}|{nation}|{phone}|{balance}|{segment}|buys parts")?;
    }
    file.flush()?;
    let (mut file, mut offers) = (table("part")?, table("partsupp")?);
    for key in 1..=parts {
        let maker = 1 + dice.below(5);
        let brand = 10 * maker + 1 + dice.below(5);
        let kind = TYPES.map(|words| dice.one(words)).join(" ");
        let container = CONTAINERS.map(|words| dice.one(words)).join(" ");
        let (size, price) = (1 + dice.below(50), price(key));
        writeln!(
            file,
            "{key}|part {key}|Manufacturer#{maker}|Brand#{brand}|{kind}|{size}|{container}|{}|new",
            money(price)
        )?;
        for offer in 0..4 {
            let supplier = supplier_of(key, offer, suppliers);
            let (quantity, cost) = (1 + dice.below(9999), money(100 + dice.below(99_901)));
            writeln!(offers, "{key}|{supplier}|{quantity}|{cost}|an offer")?;
        }
    }
    file.flush()?;
    offers.flush()?;
    let (mut file, mut lines) = (table("orders")?, table("lineitem")?);
    for number in 0..(ORDERS / scale).max(1) {
        // Of each 32 keys the first eight are used.
        let key = number / 8 * 32 + number % 8 + 1;
        let order = Order { key, suppliers, parts };
        let day = dice.below(ORDERED_LAST + 1);
        let items = order.write_items(&mut dice, day, &mut lines)?;
        // A third of the customers orders nothing.
        let customer = 1 + dice.below(customers / 3) * 3 + dice.below(2);
        let (priority, clerk) = (dice.one(&PRIORITIES), 1 + dice.below((1000 / scale).max(1)));
        let (status, total) = (items.status(), money(items.total));
        writeln!(
            file,
            "{key}|{customer}|{status}|{total}|{day}|{priority}|Clerk#{clerk:09}|0|an order"
        )?;
    }
    file.flush()?;
    lines.flush()
}

/// An order whose items are to be written.
struct Order {
    key: u64,
    suppliers: u64,
    parts: u64,
}

/// What they come to.
#[derive(Default)]
struct Items {
    count: u64,
    open: u64,
    /// Cents.
    total: u64,
}

impl Order {
    fn write_items(
        &self,
        dice: &mut Dice,
        day: u64,
        to: &mut impl Write,
    ) -> std::io::Result<Items> {
        let mut items = Items::default();
        for number in 1..=1 + dice.below(7) {
            let part = 1 + dice.below(self.parts);
            let supplier = supplier_of(part, dice.below(4), self.suppliers);
            let (quantity, discount, tax) = (1 + dice.below(50), dice.below(11), dice.below(9));
            let cents = quantity * price(part);
            let shipped = day + 1 + dice.below(121);
            let (committed, received) = (day + 30 + dice.below(61), shipped + 1 + dice.below(30));
            let returned = match received <= TODAY {
                true => dice.one(&["R", "A"]),
                false => "N",
            };
            let status = if shipped > TODAY { "O" } else { "F" };
            let (instruction, mode) = (dice.one(&INSTRUCTIONS), dice.one(&MODES));
            writeln!(
                to,
                "{}|{part}|{supplier}|{number}|{quantity}|{}|0.{discount:02}|0.{tax:02}|{returned}|\
                 {status}|{shipped}|{committed}|{received}|{instruction}|{mode}|an item",
                self.key,
                money(cents)
            )?;
            items.count += 1;
            items.open += u64::from(shipped > TODAY);
            items.total += cents * (100 - discount) * (100 + tax) / 10_000;
        }
        Ok(items)
    }
}

impl Items {
    const fn status(&self) -> &'static str {
        match self.open {
            0 => "F",
            open if open == self.count => "O",
            _ => "P",
        }
    }
}

/// Who sells a part, of the four who do. The specification has the whole second term for each
/// offer, which makes two of them one where there are few suppliers.
const fn supplier_of(part: u64, offer: u64, suppliers: u64) -> u64 {
    (part + offer * (suppliers / 4) + (part - 1) / suppliers) % suppliers + 1
}

/// Of a part, cents.
const fn price(part: u64) -> u64 {
    90_000 + part / 10 % 20_001 + 100 * (part % 1000)
}

fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

fn phone(nation: u64, key: u64) -> String {
    format!("{}-{:03}-{:03}-{:04}", nation + 10, key % 900 + 100, key % 800 + 100, key % 9000)
}

/// Numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 += 1;
        scattered(self.0) % bound.max(1)
    }

    fn one(&mut self, of: &[&'static str]) -> &'static str {
        let at = usize::try_from(self.below(of.len() as u64)).unwrap_or(0);
        of.get(at).copied().unwrap_or_default()
    }

    /// From -999.99 to 9999.99.
    fn balance(&mut self) -> String {
        let cents = self.below(1_099_999);
        match cents.checked_sub(99_999) {
            Some(above) => money(above),
            None => format!("-{}", money(99_999 - cents)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn rows(folder: &Path, name: &str) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
    }

    #[test]
    fn tables_have_their_rows_and_point_at_each_other() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 1000).unwrap();
        let read = |name| rows(folder.path(), name);
        let counts = ["region", "nation", "supplier", "customer", "part", "partsupp", "orders"]
            .map(|name| read(name).len());
        assert_eq!(counts, [5, 25, 10, 150, 200, 800, 1500]);
        let offers: BTreeSet<_> =
            read("partsupp").iter().map(|row| [row[0].clone(), row[1].clone()]).collect();
        assert_eq!(offers.len(), 800, "four suppliers of each part");
        let orders = read("orders");
        let keys: BTreeSet<_> = orders.iter().map(|row| row[0].clone()).collect();
        assert_eq!(keys.len(), 1500);
        assert!(orders.iter().all(|row| row[1].parse::<u64>().unwrap() % 3 != 0), "a third");
        let items = read("lineitem");
        assert!((4 * 1500 - 500..4 * 1500 + 500).contains(&items.len()), "{}", items.len());
        for item in &items {
            assert!(item.len() == 16 && keys.contains(&item[0]), "{item:?}");
            assert!(offers.contains(&[item[1].clone(), item[2].clone()]), "{item:?}");
        }
    }

    #[test]
    fn the_same_is_made_each_time() {
        let made = [0; 2].map(|_| {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), 10_000).unwrap();
            std::fs::read(folder.path().join("lineitem")).unwrap()
        });
        assert!(made[0] == made[1] && !made[0].is_empty());
    }
}
