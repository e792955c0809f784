package memory

import (
	"tallystick/oplog"
)

// View folds facts, marks, links and aliases.
type View struct{}

// Name is "memory".
func (View) Name() string { return ViewName }

// Version of the rows.
func (View) Version() uint32 { return 1 }

// Kinds are the four kinds of this domain.
func (View) Kinds() []string { return []string{KindFact, KindMark, KindLink, KindAlias} }

// Content are the kinds that may be erased: texts. Marks are structure (T5).
func (View) Content() []string { return []string{KindFact, KindLink, KindAlias} }

// Apply folds one entry. A fact is live when nothing names it, it is the head
// of each of its lineages, and no mark stamped after it reaches its text
// unless the fact is that mark's replacement. Entries that come later only
// ever end a life, so the order in which they come does not matter (M1).
func (View) Apply(tx oplog.Tx, e *oplog.Entry) error {
	if e.Version != PayloadVersion {
		return oplog.Quarantine("%s of payload version %d; this program reads %d", e.Kind, e.Version, PayloadVersion)
	}
	if e.Author == "" {
		return oplog.Quarantine("%s without author", e.Kind)
	}
	f := fold{tx: tx, ref: e.Ref(), hash: e.Hash}
	switch e.Kind {
	case KindFact:
		b, err := decodeFact(e.Body)
		if err != nil {
			return oplog.Quarantine("fact: %v", err)
		}
		return f.fact(&b)
	case KindMark:
		b, err := decodeMark(e.Body)
		if err != nil {
			return oplog.Quarantine("fact.mark: %v", err)
		}
		return f.mark(&b)
	case KindLink:
		b, err := decodeLink(e.Body)
		if err != nil {
			return oplog.Quarantine("fact.link: %v", err)
		}
		to := termID(b.To)
		return f.relate(&info{typ: typeLink, ns: nsID(b.Namespace), slot: termID(b.From), more: to[:], nsName: b.Namespace})
	}
	b, err := decodeAlias(e.Body)
	if err != nil {
		return oplog.Quarantine("fact.alias: %v", err)
	}
	return f.relate(&info{typ: typeAlias, ns: nsID(b.Namespace), slot: termID(node(b.Term)), nsName: b.Namespace})
}

// fold is the folding of one entry.
type fold struct {
	tx   oplog.Tx
	ref  oplog.Ref
	hash oplog.Hash
}

// fact folds a fact.
func (f *fold) fact(b *factBody) error {
	i := info{
		typ: typeFact, ref: f.ref, hash: f.hash, ns: nsID(b.Namespace), nsName: b.Namespace,
		slot: slotID(b.Namespace, b.Text), label: b.Confidence, category: b.Category, more: bands(b.Text), roots: b.Roots, class: 1,
	}
	switch {
	case !b.Import.IsZero():
		i.roots, i.class = []oplog.Hash{importRoot(b.Import)}, 0
	case len(b.Roots) == 0:
		i.roots, i.class = []oplog.Hash{f.hash}, 0
	}
	named, err := isNamed(f.tx, f.hash)
	if err != nil {
		return err
	}
	live := !named
	for _, p := range b.Parents {
		if err := f.name(p, typeFact, f.hash); err != nil {
			return err
		}
	}
	for _, root := range i.roots {
		stands, err := f.place(root, op{typ: typeFact, class: i.class, ref: i.ref, hash: i.hash}, named)
		if err != nil {
			return err
		}
		live = live && stands
	}
	if err := f.tx.Insert(key(rowInfo, f.hash[:]), i.encode()); err != nil {
		return err
	}
	if err := f.tx.Insert(key(rowAll, i.ns[:], i.ref[:]), nil); err != nil {
		return err
	}
	late, err := f.settle(&i, named)
	if err != nil {
		return err
	}
	if live = live && !late; !live {
		return addCounts(f.tx, i.nsName, 0, 1)
	}
	if err := f.tx.Insert(i.lives(), nil); err != nil {
		return err
	}
	if err := eachBand(&i, func(k []byte) error { return f.tx.Insert(k, nil) }); err != nil {
		return err
	}
	return addCounts(f.tx, i.nsName, 1, 1)
}

// settle puts a fact among the copies of its text and reports whether a mark
// stamped after it reaches it there.
func (f *fold) settle(i *info, named bool) (late bool, err error) {
	table := byte(rowOpen)
	if named {
		table = rowNamed
	}
	if err := f.tx.Insert(key(table, i.slot[:], i.ref[:]), i.hash[:]); err != nil {
		return false, err
	}
	if named {
		if err := f.bring(i); err != nil {
			return false, err
		}
	}
	if reached, err := has(f.tx, key(hasReach, i.slot[:])); err != nil || !reached {
		return false, err
	}
	err = f.tx.Scan(key(rowReach, i.slot[:]), nil, true, func(k, v []byte) (bool, error) {
		ref, err := tail(k)
		if err != nil || ref.Compare(i.ref) < 0 {
			return false, err
		}
		late = string(v) != string(i.hash[:])
		return !late, nil
	})
	if err != nil || !late || named {
		return late, err
	}
	return true, f.lost(op{typ: typeFact, ref: i.ref, hash: i.hash}, 's', i.slot[:])
}

// bring lets the marks that named a fact before it came reach its text.
func (f *fold) bring(i *info) error {
	var marks []oplog.Hash
	err := f.tx.Scan(key(rowNamer, i.hash[:]), nil, false, func(_, v []byte) (bool, error) {
		typ, h, err := tagged(v)
		if typ == typeUpdate || typ == typeForget {
			marks = append(marks, h)
		}
		return true, err
	})
	for n := 0; err == nil && n < len(marks); n++ {
		var m info
		var ok bool
		if m, ok, err = getInfo(f.tx, marks[n]); ok && err == nil {
			err = f.reach(i.slot, &m)
		}
	}
	return err
}

// mark folds a mark.
func (f *fold) mark(b *markBody) error {
	i := info{ref: f.ref, hash: f.hash, roots: b.Roots, class: 1, typ: map[action]byte{
		actUpdate: typeUpdate, actForget: typeForget, actPin: typePin, actUnpin: typeUnpin, actRemove: typeRemove,
	}[b.Action]}
	if b.Action == actUpdate {
		i.more = b.New[:]
	}
	if err := f.tx.Insert(key(rowInfo, f.hash[:]), i.encode()); err != nil {
		return err
	}
	if b.Action == actPin {
		return f.pin(&i)
	}
	if b.Action == actUnpin || b.Action == actRemove {
		return f.remove(b.Names)
	}
	for _, h := range b.Names {
		if err := f.name(h, i.typ, f.hash); err != nil {
			return err
		}
	}
	for _, h := range b.Names {
		n, ok, err := getInfo(f.tx, h)
		if err != nil {
			return err
		}
		if ok && n.fact() {
			if err := f.reach(n.slot, &i); err != nil {
				return err
			}
		}
	}
	if b.Action == actUpdate {
		return nil
	}
	named, err := isNamed(f.tx, f.hash)
	if err != nil {
		return err
	}
	for _, root := range b.Roots {
		if _, err := f.place(root, op{typ: typeForget, class: 1, ref: f.ref, hash: f.hash}, named); err != nil {
			return err
		}
	}
	return nil
}

// name notes that the entry being folded names another, which ends it.
func (f *fold) name(h oplog.Hash, typ byte, by oplog.Hash) error {
	if err := f.tx.Insert(key(rowNamer, h[:], f.ref[:]), tag(typ, by)); err != nil {
		return err
	}
	if err := note(f.tx, key(hasNamer, h[:])); err != nil {
		return err
	}
	i, ok, err := getInfo(f.tx, h)
	if err != nil || !ok {
		return err
	}
	if i.fact() {
		open := key(rowOpen, i.slot[:], i.ref[:])
		switch was, err := has(f.tx, open); {
		case err != nil:
			return err
		case was:
			if err := f.tx.Delete(open); err != nil {
				return err
			}
			if err := f.tx.Insert(key(rowNamed, i.slot[:], i.ref[:]), h[:]); err != nil {
				return err
			}
		}
		if err := f.end(&i); err != nil {
			return err
		}
	}
	return f.seen(i.ref)
}

// end takes a fact out of what is live, if it is.
func (f *fold) end(i *info) error {
	switch live, err := has(f.tx, i.lives()); {
	case err != nil || !live:
		return err
	}
	if err := f.tx.Delete(i.lives()); err != nil {
		return err
	}
	if err := eachBand(i, f.tx.Delete); err != nil {
		return err
	}
	return addCounts(f.tx, i.nsName, -1, 0)
}

// reach lets an update or forget act on every copy of a text that is stamped
// before it, named or not.
func (f *fold) reach(slot id16, m *info) error {
	var replacement []byte
	if m.typ == typeUpdate {
		replacement = m.more
	}
	if err := f.tx.Set(key(rowReach, slot[:], m.ref[:]), replacement); err != nil {
		return err
	}
	if err := note(f.tx, key(hasReach, slot[:])); err != nil {
		return err
	}
	var hidden []op
	err := f.tx.Scan(key(rowOpen, slot[:]), nil, false, func(k, v []byte) (bool, error) {
		ref, err := tail(k)
		if err != nil || ref.Compare(m.ref) > 0 {
			return false, err
		}
		if string(v) != string(replacement) {
			hidden = append(hidden, op{typ: typeFact, ref: ref, hash: oplog.Hash(v)})
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, o := range hidden {
		i, ok, err := getInfo(f.tx, o.hash)
		if err != nil {
			return err
		}
		if ok {
			if err := f.end(&i); err != nil {
				return err
			}
		}
		if err := f.lost(o, 's', slot[:]); err != nil {
			return err
		}
	}
	return nil
}

// place puts an operation into a lineage and reports whether it is its head.
// Whoever is beaten without having been named has lost unseen (M3).
func (f *fold) place(root oplog.Hash, o op, named bool) (stands bool, err error) {
	before, ok, err := head(f.tx, root)
	if err != nil {
		return false, err
	}
	if o.class == 1 || o.hash != root {
		if err := f.tx.Set(key(rowLineage, root[:], []byte{o.class}, o.ref[:]), tag(o.typ, o.hash)); err != nil {
			return false, err
		}
		if err := note(f.tx, key(hasLineage, root[:])); err != nil {
			return false, err
		}
	}
	switch {
	case !ok:
		return true, nil
	case !o.beats(before):
		if named {
			return false, nil
		}
		return false, f.lost(o, 'l', root[:])
	}
	if before.typ == typeFact {
		i, ok, err := getInfo(f.tx, before.hash)
		if err != nil {
			return false, err
		}
		if ok {
			if err := f.end(&i); err != nil {
				return false, err
			}
		}
	}
	switch named, err := isNamed(f.tx, before.hash); {
	case err != nil || named:
		return true, err
	}
	return true, f.lost(before, 'l', root[:])
}

// lost lists an operation as discarded without having been seen.
func (f *fold) lost(o op, rule byte, where []byte) error {
	if err := f.tx.Set(key(rowMerge, o.ref[:], []byte{rule}, where), tag(o.typ, o.hash)); err != nil {
		return err
	}
	return f.tx.Set(key(rowLosers, []byte{rule}, where, o.ref[:]), o.hash[:])
}

// seen takes an operation off that list.
func (f *fold) seen(ref oplog.Ref) error {
	var keys [][]byte
	prefix := key(rowMerge, ref[:])
	err := f.tx.Scan(prefix, nil, false, func(k, _ []byte) (bool, error) {
		keys = append(keys, append([]byte{}, k...), key(rowLosers, k[len(prefix):], ref[:]))
		return true, nil
	})
	for i := 0; err == nil && i < len(keys); i++ {
		err = f.tx.Delete(keys[i])
	}
	return err
}
