package memory

import (
	"strings"

	"tallystick/oplog"
)

// node is the form in which nodes of links and terms of aliases compare:
// lower case, trimmed.
func node(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// pin folds a pin: it stands on each of its lineages until it is removed.
func (f *fold) pin(i *info) error {
	for _, root := range i.roots {
		if err := note(f.tx, key(hasPin, root[:])); err != nil {
			return err
		}
	}
	switch gone, err := isRemoved(f.tx, i.hash); {
	case err != nil || gone:
		return err
	}
	return eachPin(i, func(k []byte) error { return f.tx.Insert(k, i.hash[:]) })
}

func eachPin(i *info, fn func(k []byte) error) error {
	for _, root := range i.roots {
		if err := fn(key(rowPin, root[:], i.ref[:])); err != nil {
			return err
		}
	}
	return nil
}

// relate folds a link or an alias.
func (f *fold) relate(i *info) error {
	i.ref, i.hash, i.roots = f.ref, f.hash, []oplog.Hash{f.hash}
	if err := f.tx.Insert(key(rowInfo, f.hash[:]), i.encode()); err != nil {
		return err
	}
	switch gone, err := isRemoved(f.tx, f.hash); {
	case err != nil || gone:
		return err
	}
	return eachRelation(i, func(k []byte) error { return f.tx.Insert(k, nil) })
}

func eachRelation(i *info, fn func(k []byte) error) error {
	first, second := key(rowFrom, i.ns[:], i.slot[:], i.ref[:]), key(rowTo, i.ns[:], i.more, i.ref[:])
	if i.typ == typeAlias {
		first, second = key(rowAlias, i.ns[:], i.slot[:], i.ref[:]), key(rowAliases, i.ns[:], i.ref[:])
	}
	if err := fn(first); err != nil {
		return err
	}
	return fn(second)
}

// remove takes pins, links and aliases away, those that are still to come
// included.
func (f *fold) remove(names []oplog.Hash) error {
	for _, h := range names {
		if err := f.tx.Insert(key(rowRemover, h[:], f.ref[:]), nil); err != nil {
			return err
		}
		i, ok, err := getInfo(f.tx, h)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		switch i.typ {
		case typePin:
			err = eachPin(&i, f.tx.Delete)
		case typeLink, typeAlias:
			err = eachRelation(&i, f.tx.Delete)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// MaxRelations is how many links or aliases one reading gives.
const MaxRelations = 500

// Alias is a term and the words that mean the same.
type Alias struct {
	ID          string   `json:"id"`
	Namespace   string   `json:"agent_id"`
	Term        string   `json:"term"`
	Equivalents []string `json:"equivalents"`
	Author      string   `json:"author"`
	HLC         string   `json:"hlc"`
}

// Aliases lists the aliases of a namespace, newest first. With a term it
// lists those of that term, whatever its case and padding. They widen
// matching; they are no facts and no memories.
func Aliases(snap oplog.Snapshot, namespace, term string, limit int) ([]Alias, error) {
	ns, out := nsID(namespace), []Alias{}
	prefix := key(rowAliases, ns[:])
	if term != "" {
		id := termID(node(term))
		prefix = key(rowAlias, ns[:], id[:])
	}
	err := eachEntry(snap, prefix, limit, func(e *oplog.Entry) error {
		b, err := decodeAlias(e.Body)
		if err != nil {
			return err
		}
		out = append(out, Alias{
			ID: ID(e.Hash), Namespace: b.Namespace, Term: b.Term, Equivalents: b.Equivalents, Author: e.Author, HLC: e.Ref().Stamp().String(),
		})
		return nil
	})
	return out, err
}

// Expand gives the words that mean the same as a term in a namespace, without
// repeats, in the order in which they were said.
func Expand(snap oplog.Snapshot, namespace, term string) ([]string, error) {
	list, err := Aliases(snap, namespace, term, MaxRelations)
	if err != nil {
		return nil, err
	}
	var out []string
	seen := map[string]bool{}
	for i := len(list) - 1; i >= 0; i-- {
		for _, s := range list[i].Equivalents {
			if !seen[s] {
				seen[s] = true
				out = append(out, s)
			}
		}
	}
	return out, nil
}

// Edge is a link between two nodes.
type Edge struct {
	ID     string `json:"id"`
	From   string `json:"from"`
	To     string `json:"to"`
	Author string `json:"author"`
	HLC    string `json:"hlc"`
}

// Links lists the links from a node, and those to it, newest first. The same
// link made twice is given once.
func Links(snap oplog.Snapshot, namespace, name string, limit int) (from, to []Edge, err error) {
	ns, id := nsID(namespace), termID(node(name))
	for n, table := range []byte{rowFrom, rowTo} {
		list, seen := []Edge{}, map[[2]string]bool{}
		err := eachEntry(snap, key(table, ns[:], id[:]), limit, func(e *oplog.Entry) error {
			b, err := decodeLink(e.Body)
			if err != nil || seen[[2]string{b.From, b.To}] {
				return err
			}
			seen[[2]string{b.From, b.To}] = true
			list = append(list, Edge{ID: ID(e.Hash), From: b.From, To: b.To, Author: e.Author, HLC: e.Ref().Stamp().String()})
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		if n == 0 {
			from = list
		} else {
			to = list
		}
	}
	return from, to, nil
}

// eachEntry reads the entries of rows that end in a Ref, newest first.
func eachEntry(snap oplog.Snapshot, prefix []byte, limit int, fn func(e *oplog.Entry) error) error {
	if limit <= 0 || limit > MaxRelations {
		limit = MaxRelations
	}
	n := 0
	return snap.View(ViewName).Scan(prefix, nil, true, func(k, _ []byte) (bool, error) {
		ref, err := tail(k)
		if err != nil {
			return false, err
		}
		e, err := snap.Entry(ref)
		if err != nil {
			return false, err
		}
		n++
		return n < limit, fn(&e)
	})
}
