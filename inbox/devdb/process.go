//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package devdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const shell = "/bin/sh"

// script makes the data folder when it is missing, runs Postgres, waits for the
// end of its standard input, stops Postgres and removes the trash; the word keep
// on its input means an end in good order that leaves the trash. Its arguments:
// data, binaries, trash, trash, signal for the end, then Postgres's own.
//
// File 3 is the lock. File 4 is a pipe that nobody writes to: it ends when the
// last process of Postgres has ended, which is how ready and kill see it.
const script = `
data=$1 bin=$2 trash1=$3 trash2=$4 end=$5
shift 5
pid=
trap '' HUP INT TERM # a service manager sends them to all of us; Postgres sets its own
if [ ! -e "$data/PG_VERSION" ]; then
	rm -rf "$data.new"
	"$bin/initdb" -D "$data.new" -U postgres -A trust -E UTF8 --locale=C </dev/null || data=
	[ -z "$data" ] || mv "$data.new" "$data" || data=
fi
if [ -n "$data" ]; then
	"$bin/postgres" -D "$data" "$@" </dev/null &
	pid=$!
fi
exec 4>&-
read -r word && [ "$word" = keep ] && trash1= trash2= end=INT
if [ -n "$pid" ]; then
	kill -"$end" "$pid" 2>/dev/null
	i=0
	while [ $i -lt 100 ] && kill -0 "$pid" 2>/dev/null; do
		sleep 0.1
		i=$((i + 1))
	done
	kill -QUIT "$pid" 2>/dev/null
	wait "$pid"
fi
[ -z "$trash1" ] || rm -rf "$trash1"
[ -z "$trash2" ] || rm -rf "$trash2"
`

// endPatience is how long Stop waits before it kills. The script itself asks for
// ten seconds, then five more.
const endPatience = 20 * time.Second

// process is the script and the Postgres below it.
type process struct {
	cmd *exec.Cmd
	// hold is our end of the script's input. A plain number, because an *os.File
	// would close itself, and so stop Postgres, when the Server is dropped while
	// its address is still in use.
	hold  int
	alive *os.File
}

func launch(h *home, bin string, settings map[string]string, lock, log *os.File) (*process, error) {
	data := h.dir + "/data"
	trash := append(slices.Clone(h.trash), "", "")
	end := "INT" // fast: end the connections, write a checkpoint
	if len(h.trash) > 0 && h.trash[0] == h.dir {
		end = "QUIT" // nobody will read this data again
	}
	args := []string{"-c", script, "devdb", data, bin, trash[0], trash[1], end}
	socket := `"` + strings.ReplaceAll(h.socket, `"`, `""`) + `"`
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	// Last, because the last one holds.
	args = append(args, "-c", "listen_addresses=", "-c", "unix_socket_directories="+socket, "-c", "port=5432")
	input, hold, err := pipe()
	if err != nil {
		return nil, err
	}
	defer input.Close()
	alive, write, err := os.Pipe()
	if err != nil {
		syscall.Close(hold)
		return nil, err
	}
	defer write.Close()

	cmd := exec.Command(shell, args...)
	cmd.Dir = "/"
	cmd.Env = environment()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, log, log
	cmd.ExtraFiles = []*os.File{lock, write}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: h.user}
	if err := cmd.Start(); err != nil {
		syscall.Close(hold)
		alive.Close()
		return nil, fmt.Errorf("run %s: %w", shell, err)
	}
	return &process{cmd: cmd, hold: hold, alive: alive}, nil
}

// pipe returns a pipe whose writing end no child inherits.
func pipe() (*os.File, int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil {
		return nil, 0, fmt.Errorf("make a pipe: %w", err)
	}
	syscall.CloseOnExec(p[0])
	syscall.CloseOnExec(p[1])
	return os.NewFile(uintptr(p[0]), "pipe"), p[1], nil
}

// environment keeps PGDATA, PGPORT, the locale and our secrets away from
// Postgres.
func environment() []string {
	env := []string{"LC_ALL=C", "PATH=" + strings.TrimPrefix(os.Getenv("PATH")+":/usr/bin:/bin", ":")}
	for _, name := range []string{"TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// ready waits until Postgres says in its pid file that it takes connections.
func (p *process) ready(ctx context.Context, h *home) error {
	for {
		text, err := os.ReadFile(h.pidFile())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// The eighth line is the state, padded with blanks.
		if lines := strings.Split(string(text), "\n"); len(lines) > 7 && strings.TrimSpace(lines[7]) == "ready" {
			return nil
		}
		if p.gone(10 * time.Millisecond) {
			return errors.New("it ended by itself")
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// gone waits up to d for the last process of Postgres to end.
func (p *process) gone(d time.Duration) bool {
	p.alive.SetReadDeadline(time.Now().Add(d))
	_, err := p.alive.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// end closes the script's input, after a word, and waits for the script.
func (p *process) end(word string) error {
	syscall.Write(p.hold, []byte(word)) // if the script is gone, Wait says so
	syscall.Close(p.hold)
	defer p.alive.Close()
	late := time.AfterFunc(endPatience, p.killGroup)
	err := p.cmd.Wait()
	if !late.Stop() {
		return fmt.Errorf("Postgres did not end within %s and was killed", endPatience)
	}
	if err != nil {
		return fmt.Errorf("script: %w", err)
	}
	return nil
}

// abort ends a start that has failed, whatever it is doing.
func (p *process) abort() {
	p.killGroup()
	p.cmd.Wait()
	syscall.Close(p.hold)
	p.gone(5 * time.Second) // children of Postgres notice its death by themselves
	p.alive.Close()
}

// killGroup reaches the script, initdb and the first process of Postgres.
func (p *process) killGroup() { syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

func (p *process) kill(h *home) error {
	text, err := os.ReadFile(h.pidFile())
	if err != nil {
		return err
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	pid, err := strconv.Atoi(string(line))
	if err != nil {
		return fmt.Errorf("read %s: %w", h.pidFile(), err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	if !p.gone(10 * time.Second) {
		return errors.New("some of its processes still run")
	}
	return nil
}
