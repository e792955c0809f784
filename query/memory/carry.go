package memory

import (
	"tallystick/oplog"
	"tallystick/query/carried"
)

// Carried says how facts and what is said of them are carried into another
// log: what names entries by hash names the carrying ones. The lineages of
// imported rows are named by their keys and stay.
func Carried() []carried.Kind {
	id := func(e *oplog.Entry) string { return ID(e.Hash) }
	return []carried.Kind{
		{Name: KindFact, Body: carryFact, ID: id}, {Name: KindMark, Body: carryMark, ID: id},
		{Name: KindLink, Body: carryLink, ID: id}, {Name: KindAlias, Body: carryAlias, ID: id},
	}
}

func readable(e *oplog.Entry) error {
	if e.Version != PayloadVersion {
		return oplog.Quarantine("%s of payload version %d; this program reads %d", e.Kind, e.Version, PayloadVersion)
	}
	return nil
}

func carryFact(e *oplog.Entry, m *carried.Map) ([]byte, error) {
	if err := readable(e); err != nil {
		return nil, err
	}
	b, err := decodeFact(e.Body)
	if err != nil {
		return nil, oplog.Quarantine("fact: %v", err)
	}
	b.Namespace = m.Name(b.Namespace)
	b.Roots, b.Parents = m.Hashes(b.Roots), m.Hashes(b.Parents)
	return b.encode(), nil
}

func carryMark(e *oplog.Entry, m *carried.Map) ([]byte, error) {
	if err := readable(e); err != nil {
		return nil, err
	}
	b, err := decodeMark(e.Body)
	if err != nil {
		return nil, oplog.Quarantine("fact.mark: %v", err)
	}
	b.Names, b.Roots, b.New = m.Hashes(b.Names), m.Hashes(b.Roots), m.Hash(b.New)
	return b.encode(), nil
}

func carryLink(e *oplog.Entry, m *carried.Map) ([]byte, error) {
	if err := readable(e); err != nil {
		return nil, err
	}
	b, err := decodeLink(e.Body)
	if err != nil {
		return nil, oplog.Quarantine("fact.link: %v", err)
	}
	b.Namespace = m.Name(b.Namespace)
	return b.encode(), nil
}

func carryAlias(e *oplog.Entry, m *carried.Map) ([]byte, error) {
	if err := readable(e); err != nil {
		return nil, err
	}
	b, err := decodeAlias(e.Body)
	if err != nil {
		return nil, oplog.Quarantine("fact.alias: %v", err)
	}
	b.Namespace = m.Name(b.Namespace)
	return b.encode(), nil
}
