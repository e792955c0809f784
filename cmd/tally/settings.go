package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tallystick/replica"
	"tallystick/server"
)

// settings are the flags of `up` that belong to the replica. They are
// remembered, so that an owner that a verb starts listens where the last
// `up` did and peers find it again.
type settings struct {
	Label  string   `json:"label,omitempty"`
	Listen string   `json:"listen,omitempty"`
	HTTP   string   `json:"http,omitempty"`
	Static bool     `json:"static,omitempty"`
	Peers  []string `json:"peers,omitempty"`

	Toolsets string `json:"toolsets,omitempty"` // shown over HTTP

	// RefuseSecrets refuses writes that likely hold a secret.
	RefuseSecrets bool `json:"refuse_secrets,omitempty"`
	// EmbedURL and EmbedModel are a local model that search compares meaning
	// with; empty is off.
	EmbedURL   string `json:"embed_url,omitempty"`
	EmbedModel string `json:"embed_model,omitempty"`

	// AnyPort says that the port in Listen was the system's choice: it is tried
	// again, so that peers find the replica where it was, but not insisted on.
	AnyPort bool `json:"any_port,omitempty"`
	// LastHTTP is the address of HTTP when nobody asked for one: it is tried
	// again, so that clients find it where it was, but not insisted on.
	LastHTTP string `json:"last_http,omitempty"`

	labelTyped bool // --label was given on the command line

	saved map[string]bool // flags whose value comes from the last time
}

const (
	defaultListen = "0.0.0.0:7717"
	defaultHTTP   = "127.0.0.1:0"
	httpOff       = "off"
)

func (s *settings) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&s.Label, "label", "", "name of this replica in the mesh, a-z 0-9 . _ (default: the host name)")
	fs.StringVar(&s.Listen, "listen", "", "mesh address, TCP and UDP (default "+defaultListen+", or a free port when that is taken)")
	fs.StringVar(&s.HTTP, "http", "", "loopback address for MCP over HTTP, or off (default: a free port of 127.0.0.1, the same again next time)")
	fs.BoolVar(&s.Static, "static", false, "no gossip: only the given and the remembered peers")
	fs.StringVar(&s.Toolsets, "toolsets", "", "over HTTP, "+toolsetsUsage)
	fs.BoolVar(&s.RefuseSecrets, "refuse-secrets", false, "refuse writes that likely hold a key, a token or a password")
	fs.StringVar(&s.EmbedURL, "embed-url", "", "embeddings endpoint on this machine for search by meaning, such as http://127.0.0.1:11434/v1/embeddings")
	fs.StringVar(&s.EmbedModel, "embed-model", "", "model of --embed-url")
	fs.StringArrayVar(&s.Peers, "peer", nil, "address of a peer to dial, HOST:PORT; may be repeated")
}

// load fills what was neither typed nor in the environment from the
// last time.
func (s *settings) load(cmd *cobra.Command, h home) error {
	b, err := server.ReadSmallFile(h.settingsFile(), maxOwnFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fileError("config", h.settingsFile(), err)
	}
	var old settings
	if err := json.Unmarshal(b, &old); err != nil {
		return usage(h.settingsFile(), "mend or delete it; it holds the last flags of tally up", "the settings file %s is not JSON: %v", h.settingsFile(), err)
	}
	s.saved = map[string]bool{}
	given := func(flag string) bool {
		changed := cmd.Flags().Changed(flag)
		s.saved[flag] = !changed
		return changed
	}
	s.LastHTTP = old.LastHTTP
	if !given("label") {
		s.Label = old.Label
	}
	if !given("listen") {
		s.Listen, s.AnyPort = old.Listen, old.AnyPort
	}
	if !given("http") {
		s.HTTP = old.HTTP
	}
	if !given("static") {
		s.Static = old.Static
	}
	if !given("peer") {
		s.Peers = old.Peers
	}
	if !given("refuse-secrets") {
		s.RefuseSecrets = old.RefuseSecrets
	}
	if !given("embed-url") {
		s.EmbedURL = old.EmbedURL
	}
	if !given("embed-model") {
		s.EmbedModel = old.EmbedModel
	}
	if !given("toolsets") {
		s.Toolsets = old.Toolsets
	}
	return nil
}

// save replaces the file in one step.
func (s *settings) save(h home) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode settings: %w", err)
	}
	path := h.settingsFile()
	if old, err := server.ReadSmallFile(path, maxOwnFile); err == nil && string(old) == string(b)+"\n" {
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".up-*")
	if err != nil {
		return fmt.Errorf("save settings: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(append(b, '\n'))
	if err = errors.Join(err, tmp.Close()); err != nil {
		return fmt.Errorf("save settings: %w", err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("save settings: %w", err)
	}
	return nil
}

// choosePort settles the mesh address: the one given, else the default. When
// another program has a port that nobody asked for, any free one does; taken
// is then the address that was not to be had.
func (s *settings) choosePort() (taken string) {
	if s.Listen == "" {
		s.Listen, s.AnyPort = defaultListen, true
	}
	host, port, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return "" // the replica says what is wrong with it
	}
	if port == "0" {
		s.AnyPort = true
		return ""
	}
	if !s.AnyPort {
		return ""
	}
	l, err := net.Listen("tcp", s.Listen)
	if err == nil {
		l.Close()
	} else if addressInUse(err) {
		taken, s.Listen = s.Listen, net.JoinHostPort(host, "0")
	}
	return taken
}

// check refuses what cannot be, before anything is made or kept.
func (s *settings) check(h home) error {
	if s.labelTyped && s.Label == "" {
		return replica.CheckLabel(s.Label)
	}
	if err := checkKeyring(os.Getenv("TALLY_KEYRING")); err != nil {
		return err
	}
	if _, err := server.ParseToolsets(s.Toolsets); err != nil {
		return err
	}
	if _, err := s.vectorizer(); err != nil {
		return err
	}
	if s.HTTP != "" && s.HTTP != httpOff {
		if err := server.CheckHTTPAddr(s.HTTP); err != nil {
			return err
		}
	}
	return replicaConfig(h, *s, nil).Validate()
}

// listenHTTP opens the port of HTTP: the one given, else that of the last
// time, else any. Nil without error means that there is to be none.
func (s *settings) listenHTTP() (net.Listener, error) {
	if s.HTTP == httpOff {
		return nil, nil
	}
	addr := s.HTTP
	if addr == "" {
		addr = s.LastHTTP
	}
	if addr == "" {
		addr = defaultHTTP
	}
	if err := server.CheckHTTPAddr(addr); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil && s.HTTP == "" && addressInUse(err) {
		l, err = net.Listen("tcp", defaultHTTP)
	}
	if err != nil {
		return nil, usage("http", "choose another port with --http, 0 for any, or --http off", "cannot serve HTTP on %s: %v", addr, err)
	}
	if s.HTTP == "" {
		s.LastHTTP = l.Addr().String()
	}
	return l, nil
}

// flagOf is the flag behind a field of the replica's configuration.
var flagOf = map[string]string{"Listen": "listen", "Peers": "peer", "Label": "label"}

// explain names the flag behind a field that the replica refuses, and says of
// a bad value that nobody typed now where it comes from.
func (s *settings) explain(h home, err error) error {
	e := asError(err)
	if e.Code != server.CodeInvalidArgument {
		return err
	}
	told := *e
	if flag, ok := flagOf[e.Field]; ok {
		told.Field, told.Message = flag, strings.TrimPrefix(e.Message, e.Field+": ")
		if told.Hint == "" {
			told.Hint = "give HOST:PORT, e.g. 192.0.2.7:7717"
		}
	}
	if s.saved[told.Field] {
		told.Hint = strings.TrimPrefix(fmt.Sprintf("%s; it is that of the last tally up, kept in %s: give another --%s or mend the file", told.Hint, h.settingsFile(), told.Field), "; ")
	}
	return &told
}

// remember takes over what opening the replica has settled.
func (s *settings) remember(label, listen string) {
	s.Label = label
	if s.AnyPort {
		s.Listen = listen
	}
}
