package memory

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/query/internal/args"
	"tallystick/query/refusal"
)

// CheckNamespace checks an agent_id as the identity rule wants it: at least
// one character that is not white space. Valid values stay as they are:
// padded ones are other namespaces than trimmed ones.
func CheckNamespace(field, ns string) error { return args.Filled(field, ns, MaxNamespace) }

// Validate checks a fact of a local caller. Errors are *refusal.Error.
func Validate(f Fact) error {
	if err := CheckNamespace("agent_id", f.Namespace); err != nil {
		return err
	}
	if err := args.Filled("text", f.Text, MaxText); err != nil {
		return err
	}
	if err := CheckConfidence("confidence", f.Confidence, f.Confidence != ""); err != nil {
		return err
	}
	if err := args.Text("category", f.Category, MaxCategory); err != nil {
		return err
	}
	if err := args.Text("author", f.Author, oplog.MaxAuthor); err != nil {
		return err
	}
	if err := args.Text("at", f.At, 64); err != nil {
		return err
	}
	if f.Import.IsZero() {
		return nil
	}
	return f.Import.Check()
}

// NewAdd makes the op that adds a fact.
func NewAdd(author string, f Fact) (oplog.Op, error) {
	if err := args.Author(author); err != nil {
		return oplog.Op{}, err
	}
	if err := Validate(f); err != nil {
		return oplog.Op{}, err
	}
	b := factBody{Fact: f}
	return oplog.Op{Kind: KindFact, Author: author, Version: PayloadVersion, Body: b.encode()}, nil
}

// NewUpdate makes the two ops, for one Append, that put a new text in place of
// every live copy of exactly the target text. An empty confidence is
// inherited: the lowest of what is replaced, never more.
func NewUpdate(author string, f Fact, target string) ([]oplog.Op, error) {
	if err := args.Author(author); err != nil {
		return nil, err
	}
	if err := Validate(f); err != nil {
		return nil, err
	}
	if err := checkTarget(target); err != nil {
		return nil, err
	}
	if !f.Import.IsZero() {
		return nil, refusal.Invalid("import", "leave it out", "an update has no import key: it belongs to the fact it replaces")
	}
	return replaceOps(author, f, func(r oplog.Reader) (replaced, error) {
		copies, err := liveCopies(r, f.Namespace, target)
		if err != nil {
			return replaced{}, err
		}
		if len(copies) == 0 {
			return replaced{}, notFound("target")
		}
		p := replaced{label: copies[0].label, category: copies[0].category}
		for _, c := range copies {
			p.names = append(p.names, c.hash)
			if Level(c.label) < Level(p.label) {
				p.label = c.label
			}
		}
		for i := len(copies) - 1; i >= 0; i-- { // the oldest first: they are the likeliest to be known elsewhere
			p.roots = append(p.roots, copies[i].roots...)
		}
		return p, nil
	})
}

func checkTarget(target string) error {
	if target == "" {
		return refusal.Invalid("target", "give the exact text of the fact", "target is required")
	}
	return args.Text("target", target, MaxText)
}

func notFound(field string) error {
	return refusal.New(refusal.NotFound, field, "give the exact text of a live fact; memory_search shows it", "target fact not found")
}

// replaced is what a new fact stands in for.
type replaced struct {
	names, roots    []oplog.Hash
	label, category string
}

// replaceOps makes a fact and the mark that retires what it replaces. What
// that is, find decides in the writer.
func replaceOps(author string, f Fact, find func(oplog.Reader) (replaced, error)) ([]oplog.Op, error) {
	var at hlc.Timestamp
	var p replaced
	fact := oplog.Op{Kind: KindFact, Author: author, Version: PayloadVersion}
	fact.Make = func(views oplog.Views, stamp hlc.Timestamp) (body []byte, err error) {
		if p, err = find(views.View(ViewName)); err != nil {
			return nil, err
		}
		at = stamp
		b := factBody{Fact: f, Parents: p.names, Roots: firstRoots(p.roots)}
		if b.Confidence == "" {
			b.Confidence = p.label
		}
		if b.Category == "" {
			b.Category = p.category
		}
		return b.encode(), nil
	}
	mark := markOp(author, func(r oplog.Reader) (markBody, error) {
		m := markBody{Action: actUpdate, Names: p.names}
		if !at.IsZero() {
			slot := slotID(f.Namespace, f.Text)
			stamp := binary.BigEndian.AppendUint64(nil, uint64(at))
			err := r.Scan(key(rowOpen, slot[:], stamp), nil, false, func(_, v []byte) (bool, error) {
				copy(m.New[:], v)
				return true, nil
			})
			if err != nil {
				return m, err
			}
		}
		if m.New.IsZero() {
			return m, refusal.New(refusal.Conflict, "", "read it again and repeat with a new key", "half of this update was written before under the same key")
		}
		return m, nil
	})
	return []oplog.Op{fact, mark}, nil
}

// firstRoots keeps the first lineages in the order given.
func firstRoots(list []oplog.Hash) []oplog.Hash {
	seen := map[oplog.Hash]bool{}
	var out []oplog.Hash
	for _, h := range list {
		if !seen[h] && len(out) < maxRoots {
			seen[h] = true
			out = append(out, h)
		}
	}
	return out
}

// NewForget makes the op that retires every live copy of exactly this text.
func NewForget(author, namespace, target string) (oplog.Op, error) {
	return newMark(author, namespace, target, func(r oplog.Reader) (markBody, error) {
		m := markBody{Action: actForget}
		copies, err := liveCopies(r, namespace, target)
		if err != nil {
			return m, err
		}
		for _, c := range copies {
			m.Names = append(m.Names, c.hash)
			if len(m.Roots)+len(c.roots) <= maxNames {
				m.Roots = append(m.Roots, c.roots...)
			}
		}
		return m, nil
	})
}

// NewPin makes the op that pins every live copy of exactly this text.
func NewPin(author, namespace, target string) (oplog.Op, error) {
	return newMark(author, namespace, target, func(r oplog.Reader) (markBody, error) {
		m := markBody{Action: actPin}
		copies, err := liveCopies(r, namespace, target)
		if err != nil {
			return m, err
		}
		for _, c := range copies {
			if len(m.Roots)+len(c.roots) <= maxNames {
				m.Roots = append(m.Roots, c.roots...)
			}
		}
		return m, nil
	})
}

// NewUnpin makes the op that unpins every copy of exactly this text, retired
// ones included.
func NewUnpin(author, namespace, target string) (oplog.Op, error) {
	return newMark(author, namespace, target, func(r oplog.Reader) (markBody, error) {
		m := markBody{Action: actUnpin}
		for _, table := range []byte{rowOpen, rowNamed} {
			err := eachCopy(r, table, slotID(namespace, target), func(i info) (bool, error) {
				m.Roots = append(m.Roots, i.roots...)
				return len(m.Roots) < maxNames-maxRoots, nil
			})
			if err != nil {
				return m, err
			}
		}
		for _, root := range sorted(m.Roots) {
			err := r.Scan(key(rowPin, root[:]), nil, false, func(_, v []byte) (bool, error) {
				m.Names = append(m.Names, oplog.Hash(v))
				return len(m.Names) < maxNames, nil
			})
			if err != nil {
				return m, err
			}
		}
		return m, nil
	})
}

// newMark makes a mark on copies of a text, which are looked for in the
// writer; without any it is refused.
func newMark(author, namespace, target string, find func(oplog.Reader) (markBody, error)) (oplog.Op, error) {
	if err := args.Author(author); err != nil {
		return oplog.Op{}, err
	}
	if err := CheckNamespace("agent_id", namespace); err != nil {
		return oplog.Op{}, err
	}
	if err := checkTarget(target); err != nil {
		return oplog.Op{}, err
	}
	return markOp(author, func(r oplog.Reader) (markBody, error) {
		m, err := find(r)
		if err == nil && len(m.Roots) == 0 {
			err = notFound("target")
		}
		return m, err
	}), nil
}

// markOp is a mark whose body is made in the writer, from the view as it stands.
func markOp(author string, body func(oplog.Reader) (markBody, error)) oplog.Op {
	return oplog.Op{Kind: KindMark, Author: author, Version: PayloadVersion, Make: func(views oplog.Views, _ hlc.Timestamp) ([]byte, error) {
		m, err := body(views.View(ViewName))
		if err != nil {
			return nil, err
		}
		return m.encode(), nil
	}}
}

func undoForget(author string, standing func(oplog.Reader) (names, roots []oplog.Hash, err error)) ([]oplog.Op, error) {
	if err := args.Author(author); err != nil {
		return nil, err
	}
	return []oplog.Op{markOp(author, func(r oplog.Reader) (markBody, error) {
		names, roots, err := standing(r)
		return markBody{Action: actForget, Names: names, Roots: roots}, err
	})}, nil
}

// NewLink makes the op that links two nodes, which are kept lower-cased and
// trimmed.
func NewLink(author, namespace, from, to string) (oplog.Op, error) {
	if err := args.Author(author); err != nil {
		return oplog.Op{}, err
	}
	if err := CheckNamespace("agent_id", namespace); err != nil {
		return oplog.Op{}, err
	}
	l := linkBody{Namespace: namespace, From: node(from), To: node(to)}
	if err := args.Filled("text", l.From, MaxTerm); err != nil {
		return oplog.Op{}, err
	}
	if err := args.Filled("target", l.To, MaxTerm); err != nil {
		return oplog.Op{}, err
	}
	return oplog.Op{Kind: KindLink, Author: author, Version: PayloadVersion, Body: l.encode()}, nil
}

// NewAlias makes the op that says which words mean the same as a term.
// Repeats among the equivalents are dropped, blank ones refused.
func NewAlias(author, namespace, term string, equivalents []string) (oplog.Op, error) {
	if err := args.Author(author); err != nil {
		return oplog.Op{}, err
	}
	if err := CheckNamespace("agent_id", namespace); err != nil {
		return oplog.Op{}, err
	}
	if err := args.Filled("term", term, MaxTerm); err != nil {
		return oplog.Op{}, err
	}
	a := aliasBody{Namespace: namespace, Term: term}
	if len(equivalents) == 0 {
		return oplog.Op{}, refusal.Invalid("equivalents", "give at least one word", "equivalents is empty")
	}
	if len(equivalents) > MaxTerms {
		return oplog.Op{}, refusal.New(refusal.TooLarge, "equivalents", "send fewer", "equivalents has %d words, at most %d are allowed", len(equivalents), MaxTerms)
	}
	seen := map[string]bool{}
	for _, s := range equivalents {
		if err := args.Filled("equivalents", s, MaxTerm); err != nil {
			return oplog.Op{}, err
		}
		if !seen[s] {
			seen[s] = true
			a.Equivalents = append(a.Equivalents, s)
		}
	}
	return oplog.Op{Kind: KindAlias, Author: author, Version: PayloadVersion, Body: a.encode()}, nil
}

// NewRemove makes the op that takes links or aliases away, by id. One that is
// not here yet is taken away when it comes.
func NewRemove(snap oplog.Snapshot, author string, ids ...string) (oplog.Op, error) {
	if err := args.Author(author); err != nil {
		return oplog.Op{}, err
	}
	m := markBody{Action: actRemove}
	for _, id := range ids {
		e, err := find(snap, "id", id, KindLink, KindAlias)
		if err != nil {
			return oplog.Op{}, err
		}
		m.Names = append(m.Names, e.Hash)
	}
	if len(m.Names) == 0 || len(m.Names) > maxNames {
		return oplog.Op{}, refusal.Invalid("id", "name what to remove", "%d ids are given", len(ids))
	}
	return oplog.Op{Kind: KindMark, Author: author, Version: PayloadVersion, Body: m.encode()}, nil
}

// SetOpID gives the ops of one Append their client op ids (A2): the first the
// caller's own, the others derived ones.
func SetOpID(ops []oplog.Op, opID string) {
	if opID == "" {
		return
	}
	for i := range ops {
		ops[i].OpID = opID
		if i > 0 {
			d := sha256.Sum256(append([]byte(opID), 0, byte(i)))
			ops[i].OpID = "tally." + hex.EncodeToString(d[:16])
		}
	}
}

// Outcome is what ops of this package did.
type Outcome struct {
	FactID   string   // the fact that was written, if one was
	EntryID  string   // the first entry, whatever it is
	Retired  []string // facts that were retired, forgotten or replaced
	Replayed bool     // the op id was known: this is the first result
}

// OutcomeOf reads what appended ops did from the log, so that a repeated op id
// gives the first result.
func OutcomeOf(snap oplog.Snapshot, done []oplog.Appended) (Outcome, error) {
	var o Outcome
	for n, a := range done {
		e, err := snap.Entry(a.Ref)
		if err != nil {
			return o, err
		}
		if n == 0 {
			o.EntryID, o.Replayed = ID(a.Hash), a.Replayed
		}
		switch e.Kind {
		case KindFact:
			o.FactID = ID(a.Hash)
		case KindMark:
			m, err := decodeMark(e.Body)
			if err != nil {
				return o, err
			}
			if m.Action != actUpdate && m.Action != actForget {
				continue
			}
			for _, h := range m.Names {
				if i, ok, err := getInfo(snap.View(ViewName), h); err != nil {
					return o, err
				} else if ok && i.fact() {
					o.Retired = append(o.Retired, ID(h))
				}
			}
		}
	}
	return o, nil
}
