"""Writes harbour_log.csv: the log of an invented harbour, 240 entries over ten days. Run: python3 make_harbour_log.py

There is no randomness: each part of an entry is taken from its table with a stride that shares no factor with the
table's length, so that parts combine in ever new ways and the file is the same on every machine.
"""

import csv
import pathlib

ENTRIES = 240

PLACES = [
    "north breakwater", "fish quay", "pilot station", "container quay", "grain berth", "marina gate",
    "dry dock", "fuel jetty", "ferry ramp", "south mole", "turning basin",
]

VESSELS = [
    "Annelise", "Kestrel of Sund", "Maren B", "Grey Heron", "Tordis", "Little Auk", "Ocean Ledger", "Saint Brannoc",
    "Violet Hour", "Nordlys 7", "Pelican Crossing", "Hanne Sofie", "Quiet Margin",
]

EVENTS = [
    "{vessel} asked for a second tug because of the cross swell at the {place}",
    "green lamp at the {place} out for eleven minutes, spare fitted by the watch",
    "{vessel} reported a drifting pallet close to the {place}, collected by the work boat",
    "diver inspection at the {place} postponed, visibility under one metre",
    "{vessel} left the {place} forty minutes late, crane operator short of a relief",
    "oil sheen of a few square metres near the {place}, absorbent boom laid, source unknown",
    "{vessel} touched the fender at the {place}, paint scraped, no damage to the hull found",
    "fog bank reached the {place}, sound signal on, ferries at half speed",
    "{vessel} requests shore power at the {place} for two nights",
    "mooring line parted at the {place}, nobody hurt, line replaced from stores",
    "{vessel} delivered nine tonnes of herring at the {place}, ice plant at its limit",
    "gauge at the {place} reads twelve centimetres above the table, wind holding the tide in",
    "{vessel} anchored off the {place} to wait for documents",
    "survey boat found the depth at the {place} thirty centimetres less than charted",
    "{vessel} carries a passenger with a broken wrist, ambulance met her at the {place}",
    "seal asleep on the slipway by the {place}, launch of the pilot cutter delayed",
    "{vessel} swung at the {place} with the stern thruster out of order, both tugs fast",
]

REMARKS = [
    "Harbour master informed.", "To be followed up by the day watch.", "Nothing further.", "Photographs in the folder.",
    "Third time this month.", "Owner will send a report.", "Chart correction proposed.",
]

WINDS = ["SW 4", "W 5", "W 6", "NW 7", "N 3", "NE 2", "E 4", "SE 5", "S 3", "calm"]


def entry(number):
    minutes = number * 60 + (number * 37) % 60
    day, hour, minute = 3 + minutes // 1440, minutes // 60 % 24, minutes % 60
    place = PLACES[number * 7 % len(PLACES)]
    vessel = VESSELS[number * 5 % len(VESSELS)]
    event = EVENTS[number * 11 % len(EVENTS)].format(place=place, vessel=vessel)
    note = f"{event[0].upper()}{event[1:]}. {REMARKS[number * 3 % len(REMARKS)]}"
    return [f"HL-{number + 1:04}", f"day {day:02} {hour:02}:{minute:02}", place, vessel, WINDS[number // 6 * 3 % len(WINDS)], note]


def main():
    path = pathlib.Path(__file__).with_name("harbour_log.csv")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["entry", "time", "place", "vessel", "wind", "note"])
        writer.writerows(entry(number) for number in range(ENTRIES))


if __name__ == "__main__":
    main()
