package memory

import (
	"tallystick/oplog"
	"tallystick/query/internal/args"
	"tallystick/query/refusal"
)

// Action is what memory_reflect does, exact in case.
type Action string

// The actions.
const (
	Add    Action = "add"
	Update Action = "update"
	Forget Action = "forget"
	Link   Action = "link"
	Pin    Action = "pin"
	Unpin  Action = "unpin"
)

// Actions lists them, as the schema's enum does.
func Actions() []string {
	return []string{string(Add), string(Update), string(Forget), string(Link), string(Pin), string(Unpin)}
}

// Reflect is a valid call of memory_reflect.
type Reflect struct {
	Action     Action
	Namespace  string // agent_id, or agent when that is absent; unchanged
	Text       string
	Target     string
	Confidence string // empty when not given
	OldName    bool   // only the deprecated agent was given
}

// ParseReflect validates the arguments of memory_reflect before anything else
// is touched. The schema is flat and asks for action only; that an identity is
// given is checked here. Every identity field that is present must be a string
// with more than white space in it: a malformed one is an error even beside a
// valid one, and never a reason to fall back. agent_id wins over agent; valid
// values are used unchanged.
func ParseReflect(raw []byte) (Reflect, error) {
	o, err := args.Parse(raw, "action", "agent_id", "agent", "text", "target", "confidence")
	if err != nil {
		return Reflect{}, err
	}
	var r Reflect
	if err := r.identity(o); err != nil {
		return Reflect{}, err
	}
	name, given, err := o.String("action")
	if err != nil {
		return Reflect{}, oneOfActions(err)
	}
	if !given {
		return Reflect{}, oneOfActions(refusal.Invalid("action", "say what to do", "action is required"))
	}
	if r.Action = Action(name); !known(r.Action) {
		return Reflect{}, refusal.OneOf("action", name, Actions())
	}
	for _, f := range []struct {
		field string
		value *string
	}{{"text", &r.Text}, {"target", &r.Target}} {
		if *f.value, _, err = o.String(f.field); err != nil {
			return Reflect{}, err
		}
	}
	if r.Confidence, given, err = o.String("confidence"); err != nil {
		return Reflect{}, oneOfLabels(err)
	}
	if given && r.Action != Add && r.Action != Update {
		return Reflect{}, refusal.Invalid("confidence", "leave it out", "action %s takes no confidence", r.Action)
	}
	if err := CheckConfidence("confidence", r.Confidence, given); err != nil {
		return Reflect{}, err
	}
	return r, r.check()
}

// identity reads agent_id and agent.
func (r *Reflect) identity(o args.Object) error {
	id, given, err := o.String("agent_id")
	if err != nil {
		return err
	}
	if given {
		if err := CheckNamespace("agent_id", id); err != nil {
			return err
		}
	}
	old, oldGiven, err := o.String("agent")
	if err != nil {
		return err
	}
	if oldGiven {
		if err := CheckNamespace("agent", old); err != nil {
			return err
		}
	}
	switch {
	case given:
		r.Namespace = id
	case oldGiven:
		r.Namespace, r.OldName = old, true
	default:
		return refusal.Invalid("agent_id", "name the namespace, e.g. your own identity or "+Shared, "agent_id is required: memory_reflect never guesses an identity")
	}
	return nil
}

// check checks the texts that the action needs.
func (r *Reflect) check() error {
	switch r.Action {
	case Add, Update:
		if err := args.Filled("text", r.Text, MaxText); err != nil {
			return err
		}
		if r.Action == Update {
			return checkTarget(r.Target)
		}
		return nil
	case Link:
		if err := args.Filled("text", r.Text, MaxTerm); err != nil {
			return err
		}
		return args.Filled("target", r.Target, MaxTerm)
	}
	if r.Text == "" && r.Target == "" {
		return refusal.Invalid("target", "give the exact text of the fact", "action %s needs target or text", r.Action)
	}
	return checkTarget(r.fact())
}

// fact is the exact text that forget, pin and unpin look for: target wins.
func (r *Reflect) fact() string {
	if r.Target != "" {
		return r.Target
	}
	return r.Text
}

// Ops makes the ops of the call, for one Append. Actions on existing facts
// look for them in the writer and are refused there with code not_found.
func (r *Reflect) Ops(author string) ([]oplog.Op, error) {
	f := Fact{Namespace: r.Namespace, Text: r.Text, Confidence: r.Confidence}
	var op oplog.Op
	var err error
	switch r.Action {
	case Add:
		op, err = NewAdd(author, f)
	case Update:
		return NewUpdate(author, f, r.Target)
	case Forget:
		op, err = NewForget(author, r.Namespace, r.fact())
	case Pin:
		op, err = NewPin(author, r.Namespace, r.fact())
	case Unpin:
		op, err = NewUnpin(author, r.Namespace, r.fact())
	case Link:
		op, err = NewLink(author, r.Namespace, r.Text, r.Target)
	default:
		err = refusal.OneOf("action", string(r.Action), Actions())
	}
	if err != nil {
		return nil, err
	}
	return []oplog.Op{op}, nil
}

func known(a Action) bool {
	for _, k := range Actions() {
		if string(a) == k {
			return true
		}
	}
	return false
}

func oneOfActions(err error) error { return allow(err, Actions()) }
func oneOfLabels(err error) error  { return allow(err, Confidences()) }

// allow names the allowed values in a refusal.
func allow(err error, values []string) error {
	if e, ok := err.(*refusal.Error); ok {
		e.Allowed = values
	}
	return err
}

// Addition is a valid call of memory_add.
type Addition struct {
	Fact
	Given bool // agent_id was given; otherwise the caller's own namespace is meant
}

// ParseAdd validates the arguments of memory_add: agent_id, text, confidence.
// Without agent_id the namespace is own, which may be empty for a caller
// without identity and is then refused.
func ParseAdd(raw []byte, own string) (Addition, error) {
	o, err := args.Parse(raw, "agent_id", "text", "confidence")
	if err != nil {
		return Addition{}, err
	}
	var a Addition
	if a.Namespace, a.Given, err = namespace(o, own); err != nil {
		return Addition{}, err
	}
	if a.Text, _, err = o.String("text"); err != nil {
		return Addition{}, err
	}
	label, given, err := o.String("confidence")
	if err != nil {
		return Addition{}, oneOfLabels(err)
	}
	if err := CheckConfidence("confidence", label, given); err != nil {
		return Addition{}, err
	}
	a.Confidence = label
	return a, Validate(a.Fact)
}

func namespace(o args.Object, own string) (string, bool, error) {
	ns, given, err := o.String("agent_id")
	switch {
	case err != nil:
		return "", false, err
	case given:
		return ns, true, CheckNamespace("agent_id", ns)
	case own == "":
		return "", false, refusal.New(refusal.IdentityUnbound, "agent_id", "name a namespace, or start the server with --agent NAME", "agent_id is absent and this session is bound to no identity")
	}
	return own, false, nil
}

// Aliasing is a valid call of memory_alias.
type Aliasing struct {
	Namespace, Term string
	Equivalents     []string
}

// ParseAlias validates the arguments of memory_alias: agent_id, term,
// equivalents.
func ParseAlias(raw []byte, own string) (Aliasing, error) {
	o, err := args.Parse(raw, "agent_id", "term", "equivalents")
	if err != nil {
		return Aliasing{}, err
	}
	var a Aliasing
	if a.Namespace, _, err = namespace(o, own); err != nil {
		return Aliasing{}, err
	}
	if a.Term, _, err = o.String("term"); err != nil {
		return Aliasing{}, err
	}
	if a.Equivalents, _, err = o.Strings("equivalents", MaxTerms); err != nil {
		return Aliasing{}, err
	}
	_, err = NewAlias("check", a.Namespace, a.Term, a.Equivalents)
	return a, err
}
