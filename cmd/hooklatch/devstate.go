package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// devState is what a running dev leaves for send and for the commands that look
// into its database. It holds a secret, so its file is for its user alone.
type devState struct {
	V        int    `json:"v"`
	PID      int    `json:"pid"`
	URL      string `json:"url"`   // of the source
	Admin    string `json:"admin"` // address of the private listener
	Scheme   string `json:"scheme"`
	KeyID    string `json:"key_id"`
	Secret   string `json:"secret"` // as a secret file would hold it
	MaxBody  int64  `json:"max_body"`
	Database string `json:"database_url"`
}

// devStateFile lies in the runtime folder of the user, else in that for caches:
// never in one that all users share.
func devStateFile() (string, error) {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		var err error
		if dir, err = os.UserCacheDir(); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "hooklatch", "dev.json"), nil
}

// readDevState finds the running dev. Its error has exit code 4.
func readDevState() (devState, error) {
	const try = "hooklatch dev   in another terminal, or --url URL --scheme NAME --secret-file FILE"
	var st devState
	file, err := devStateFile()
	if err != nil {
		return st, fail(exitUnreachable, fmt.Errorf("find a running dev: %w", err), try)
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return st, fail(exitUnreachable, errors.New("no dev is running"), try)
	}
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	if err != nil {
		return st, fail(exitUnreachable, fmt.Errorf("find a running dev: %w", err), try)
	}
	return st, nil
}

// verifier signs as dev's source expects it.
func (st devState) verifier() (*verify.Verifier, error) {
	scheme, err := presetScheme(st.Scheme)
	if err != nil {
		return nil, err
	}
	key, err := verify.NewKey(st.KeyID, []byte(st.Secret), scheme.SecretSpec())
	if err != nil {
		return nil, err
	}
	keys, err := verify.NewKeySet(key)
	if err != nil {
		return nil, err
	}
	return &verify.Verifier{Scheme: scheme, Keys: keys, MaxBody: int(st.MaxBody), URL: st.URL}, nil
}

// runs says whether the dev that left the state still answers.
func (st devState) runs() bool {
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	answer, err := client.Get(st.Admin + "/livez")
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// write puts the file in place whole. A later dev replaces an earlier one's.
func (st devState) write() error {
	file, err := devStateFile()
	if err != nil {
		return err
	}
	text, err := json.Marshal(st)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	// A name of its own, mode 0600 from the first byte on.
	part, err := os.CreateTemp(filepath.Dir(file), "dev-*")
	if err != nil {
		return err
	}
	_, err = part.Write(text)
	if closeErr := part.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(part.Name(), file)
	}
	if err != nil {
		os.Remove(part.Name())
	}
	return err
}

// remove takes the file away, unless a later dev has put its own there. Where an
// earlier one still runs, send finds that one again.
func (st devState) remove(earlier *devState) {
	if there, err := readDevState(); err != nil || there.PID != st.PID {
		return
	}
	if earlier != nil && earlier.runs() && earlier.write() == nil {
		return
	}
	if file, err := devStateFile(); err == nil {
		os.Remove(file)
	}
}
