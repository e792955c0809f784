// Package secrets finds what is likely a key, a token or a password in a text
// that is about to be stored and synced for good.
//
//	for _, f := range secrets.Find(text) {
//		fmt.Println(f.Kind, f.Shown)
//	}
//
// Most callers need Find. It looks for credentials that announce themselves: by
// the prefix their issuer gives them, by their armour, or by a name such as
// password beside them. What has no such mark is not guessed at: hashes of
// commits, ids and checksums are everywhere in a coding agent's notes.
//
// A finding never holds the secret, only its first characters, so that it can be
// shown and logged. A text without findings is not thereby free of secrets.
package secrets
