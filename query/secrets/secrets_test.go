package secrets_test

import (
	"fmt"
	"strings"
	"testing"

	"tallystick/query/secrets"
)

// join puts the parts of a made-up secret together, so that no scanner of this
// repository takes the test for a leak.
func join(parts ...string) string { return strings.Join(parts, "") }

var alnum = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3gH5jK7mN9pQ1"

func TestFind(t *testing.T) {
	for _, tt := range []struct{ kind, text, secret string }{
		{"aws access key", "key is %s ok", join("AK", "IA", "QWERTYUIOPASDFGH")},
		{"github token", "use %s", join("gh", "p_", alnum[:36])},
		{"github token", "%s", join("github", "_pat_", alnum[:40])},
		{"gitlab token", "(%s)", join("gl", "pat-", alnum[:20])},
		{"slack token", "slack: %s", join("xo", "xb-", "123456789012-", alnum[:24])},
		{"slack webhook", "post to %s now", join("https://hooks.slack", ".com/services/T0000/B0000/", alnum[:24])},
		{"api key", "OPENAI %s", join("sk", "-proj-", alnum[:40])},
		{"api key", "%s", join("sk", "-ant-api03-", alnum[:40])},
		{"api key", "%s", join("sk", "_live_", alnum[:24])},
		{"google api key", "maps %s", join("AI", "za", alnum[:35])},
		{"hugging face token", "%s", join("h", "f_", alnum[:34])},
		{"npm token", "%s", join("npm", "_", alnum[:36])},
		{"tallystick token", "join with %s", join("tally", "1.", alnum)},
		{"json web token", "%s", join("ey", "JhbGciOiJIUzI1NiJ9", ".ey", "JzdWIiOiIxMjM0NTY3ODkw", ".", alnum[:20])},
		{"private key", "%s\nMIIE", join("-----BEGIN RSA ", "PRIVATE KEY-----")},
		{"private key", "%s", join("-----BEGIN OPENSSH ", "PRIVATE KEY-----")},
		{"age secret key", "%s", join("AGE-SECRET", "-KEY-1", strings.ToUpper(alnum))},
		{"password in a url", "postgres://app:%s@db.internal/app", "hunter2x"},
		{"authorization header", "curl -H 'Authorization: Bearer %s'", alnum[:30]},
		{"value named like a secret", `password = "%s"`, "correct-horse-7"},
		{"value named like a secret", "DB_PASSWORD=%s", "s3cr3t!pass"},
		{"value named like a secret", `{"api_key": "%s"}`, alnum[:32]},
		{"value named like a secret", "the admin password: %s", "Tr0ub4dor&3"},
		{"value named like a secret", "aws_secret_access_key = %s", alnum[:40]},
	} {
		t.Run("OK "+tt.kind, func(t *testing.T) {
			text := fmt.Sprintf(tt.text, tt.secret)
			got := secrets.Find(text)
			if len(got) != 1 || got[0].Kind != tt.kind || text[got[0].Start:got[0].End] != tt.secret {
				t.Fatalf("%q: %+v", tt.text, got)
			}
			if shown := got[0].Shown; !strings.HasSuffix(shown, "...") || len(shown) > 8 || !strings.HasPrefix(tt.secret, strings.TrimSuffix(shown, "...")) {
				t.Errorf("shown as %q", shown)
			}
		})
	}
}

// What coding agents write all day must not be flagged.
func TestFind_Innocent(t *testing.T) {
	for _, text := range []string{
		"mended in 1f3c2d4b5a69788796a5b4c3d2e1f00112233445 on main",
		"evt_20261130T222400_6a6edd9fc9cc and mem_0123456789abcdef",
		"the token budget: 3000 tokens at most",
		"max_tokens=4096",
		"password: string",
		"password: <your password>",
		"api_key = os.Getenv(\"API_KEY\")",
		"token := parseToken(input)",
		"token: ${GITHUB_TOKEN}",
		"SECRET_KEY=changeme",
		"secret: redacted",
		"the secret: it never retries",
		"tokens: next_cursor",
		"password=********",
		"Authorization: Bearer <token>",
		"https://user@example.org/path and http://127.0.0.1:7717/mcp",
		"postgres://app:$PGPASSWORD@db/app",
		"credential.helper=osxkeychain",
		"ask-the-user-about-the-risk-of-task-lists",
		"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"session.token=cfg.Session.Token",
		"passwords are stored with bcrypt",
		"token=true",
		"private_key_file: /etc/tally/device.key",
		strings.Repeat("plain words without anything ", 2000),
		"", "short",
	} {
		if got := secrets.Find(text); len(got) != 0 {
			t.Errorf("%.80q: %+v %q", text, got, text[got[0].Start:got[0].End])
		}
	}
}

func TestFind_Bounded(t *testing.T) {
	one := join("gh", "p_", alnum[:36])
	if n := len(secrets.Find(strings.Repeat(one+" ", 500))); n != secrets.MaxFindings {
		t.Errorf("%d findings", n)
	}
	if got := secrets.Find("token=" + one); len(got) != 1 {
		t.Errorf("one secret by two rules is %+v", got)
	}
}

func FuzzFind(f *testing.F) {
	f.Add("password=\"\xff\xfe\"")
	f.Add("token: " + alnum)
	f.Fuzz(func(t *testing.T, text string) {
		for _, got := range secrets.Find(text) {
			if got.Start < 0 || got.End > len(text) || got.Start >= got.End {
				t.Fatalf("%+v", got)
			}
		}
	})
}

func Example() {
	for _, f := range secrets.Find("deploy with DB_PASSWORD=s3cr3t!pass") {
		fmt.Println(f.Kind, f.Shown)
	}
	// Output: value named like a secret s3...
}
