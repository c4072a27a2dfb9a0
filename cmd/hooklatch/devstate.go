package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hooklatch/hooklatch/verify"
)

// devState is what a running dev leaves for send and for the commands that look
// into its database. It holds a secret, so its file is for its user alone.
type devState struct {
	V        int            `json:"v"`
	PID      int            `json:"pid"`
	URL      string         `json:"url"`   // of the source
	Admin    string         `json:"admin"` // address of the private listener
	Scheme   string         `json:"scheme"`
	Recipe   *verify.Recipe `json:"recipe,omitempty"` // of a scheme that is not built in
	KeyID    string         `json:"key_id"`
	Secret   string         `json:"secret"` // as a secret file would hold it
	MaxBody  int64          `json:"max_body"`
	Database string         `json:"database_url"`
}

// devStateDir lies in the runtime folder of the user, else in that for caches:
// never in one that all users share. Each dev has a file of its own there.
func devStateDir() (string, error) {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		var err error
		if dir, err = os.UserCacheDir(); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "hooklatch"), nil
}

func (st devState) file() (string, error) {
	dir, err := devStateDir()
	return filepath.Join(dir, fmt.Sprintf("dev-%d.json", st.PID)), err
}

var errNoDev = errors.New("no dev is running")

// readDevState finds the running dev, the newest where there are several, and
// removes what those that did not end in order have left. Its error has exit code 4.
func readDevState() (devState, error) {
	try := programName() + " dev   in another terminal, or --url URL --scheme NAME --secret-file FILE"
	dir, err := devStateDir()
	if err != nil {
		return devState{}, fail(exitUnreachable, fmt.Errorf("find a running dev: %w", err), try)
	}
	files, err := devStateFiles(dir)
	if err != nil {
		return devState{}, fail(exitUnreachable, fmt.Errorf("find a running dev: %w", err), try)
	}
	for _, file := range files {
		var st devState
		text, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(text, &st) != nil {
			continue // it ended just now, or is of another version
		}
		switch runs, gone := st.runs(); {
		case runs:
			return st, nil
		case gone:
			os.Remove(file)
		}
	}
	return devState{}, fail(exitUnreachable, errNoDev, try)
}

// devStateFiles lists the files, the newest first.
func devStateFiles(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "dev-*.json"))
	if err != nil {
		return nil, err
	}
	written := map[string]time.Time{}
	for _, file := range files {
		if stat, err := os.Stat(file); err == nil {
			written[file] = stat.ModTime()
		}
	}
	slices.SortFunc(files, func(a, b string) int { return written[b].Compare(written[a]) })
	return files, nil
}

func (st devState) scheme() (verify.Scheme, error) {
	if st.Recipe != nil {
		return st.Recipe.Compile()
	}
	return presetScheme(st.Scheme, "")
}

// verifier signs as dev's source expects it.
func (st devState) verifier() (*verify.Verifier, error) {
	scheme, err := st.scheme()
	if err != nil {
		return nil, err
	}
	key, err := verify.NewKey(st.KeyID, []byte(st.Secret), signingSpec(scheme))
	if err != nil {
		return nil, err
	}
	keys, err := verify.NewKeySet(key)
	if err != nil {
		return nil, err
	}
	v := &verify.Verifier{Scheme: scheme, Keys: keys, MaxBody: int(st.MaxBody), URL: st.URL, Params: map[string]string{}}
	for _, name := range scheme.Recipe().Params {
		v.Params[name] = "dev"
	}
	return v, nil
}

// runs says whether the dev that left the state answers, and whether it is gone for
// good: one that is stopped or under a debugger does neither.
func (st devState) runs() (runs, gone bool) {
	process, err := os.FindProcess(st.PID)
	if err != nil || errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return false, true
	}
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	answer, err := client.Get(st.Admin + "/livez")
	if err != nil {
		// Refused: another process has the number now.
		return false, errors.Is(err, syscall.ECONNREFUSED)
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK, false
}

// write puts the file in place whole.
func (st devState) write() error {
	file, err := st.file()
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
	part, err := os.CreateTemp(filepath.Dir(file), ".dev-*")
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

// remove takes the file away: send finds an earlier dev again, where one runs.
func (st devState) remove() {
	if file, err := st.file(); err == nil {
		os.Remove(file)
	}
}
