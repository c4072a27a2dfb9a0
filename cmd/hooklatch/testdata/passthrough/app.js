// A small web app with what real ones have: sessions, redirects, uploads, files with
// ranges and validators, compressed pages, events, trailers, WebSocket.
'use strict'
const http = require('http')
const zlib = require('zlib')
const crypto = require('crypto')

const page = '<!doctype html><title>shop</title>' + '<p>caf\u00e9 \u20ac</p>'.repeat(200)
const file = Buffer.alloc(300000, 'abcdefghij')
const etag = '"' + crypto.createHash('sha256').update(file).digest('hex').slice(0, 16) + '"'

function collect(req, done) {
  const hash = crypto.createHash('sha256')
  let size = 0
  req.on('data', (b) => { hash.update(b); size += b.length })
  req.on('end', () => done({ size, sha256: hash.digest('hex') }))
}

// echo tells what the app has seen of a request.
function echo(req, res) {
  collect(req, (body) => {
    const headers = []
    for (let i = 0; i < req.rawHeaders.length; i += 2) {
      headers.push(req.rawHeaders[i].toLowerCase() + ': ' + req.rawHeaders[i + 1])
    }
    res.setHeader('content-type', 'application/json')
    res.flushHeaders() // without a length: that of the text differs with what proxies add
    res.end(JSON.stringify({ method: req.method, url: req.url, headers: headers.sort(), body, trailers: req.trailers }))
  })
}

function serveFile(req, res) {
  res.setHeader('etag', etag)
  res.setHeader('last-modified', 'Tue, 01 Dec 2026 00:00:00 GMT')
  res.setHeader('accept-ranges', 'bytes')
  res.setHeader('content-type', 'application/octet-stream')
  if (req.headers['if-none-match'] === etag) return res.writeHead(304).end()
  const range = /^bytes=(\d+)-(\d*)$/.exec(req.headers.range || '')
  if (!range) return res.writeHead(200, { 'content-length': file.length }).end(req.method === 'HEAD' ? undefined : file)
  const first = Number(range[1])
  const last = range[2] ? Number(range[2]) : file.length - 1
  if (first >= file.length) return res.writeHead(416, { 'content-range': 'bytes */' + file.length, 'content-length': 0 }).end()
  res.writeHead(206, { 'content-range': `bytes ${first}-${last}/${file.length}`, 'content-length': last - first + 1 })
  res.end(file.subarray(first, last + 1))
}

const routes = {
  '/': (req, res) => {
    res.setHeader('content-type', 'text/html; charset=utf-8')
    res.setHeader('vary', ['Accept-Encoding', 'Cookie'])
    res.setHeader('link', ['</a.css>; rel=preload', '</b.js>; rel=preload'])
    if (!/\bgzip\b/.test(req.headers['accept-encoding'] || '')) return res.end(page)
    res.setHeader('content-encoding', 'gzip')
    const zip = zlib.createGzip()
    zip.pipe(res)
    zip.end(page)
  },
  '/login': (req, res) => collect(req, () => {
    res.setHeader('set-cookie', ['sid=abc; Path=/; HttpOnly; SameSite=Lax', 'theme=dark; Expires=Wed, 01 Dec 2027 00:00:00 GMT', 'empty='])
    res.writeHead(303, { location: '/account?from=login#top' }).end()
  }),
  '/account': (req, res) => {
    if (!/\bsid=abc\b/.test(req.headers.cookie || '')) return res.writeHead(401, { 'www-authenticate': ['Basic realm="a, b"', 'Bearer'] }).end('who?')
    res.end('hello ' + req.headers.cookie)
  },
  '/moved': (req, res) => res.writeHead(301, { location: `http://${req.headers.host}//x/../y?a;b` }).end(),
  '/again': (req, res) => res.writeHead(307, { location: 'relative/./path' }).end(),
  '/file': serveFile,
  '/nothing': (req, res) => res.writeHead(204).end(),
  '/plain': (req, res) => { res.sendDate = false; res.writeHead(200, { 'x-bytes': 'caf\u00e9', server: 'shop/1' }); res.end('<html>no type') },
  '/broken': (req, res) => { res.writeHead(500, 'Out Of Order', { 'retry-after': '7' }); res.end('sorry') },
  '/teapot': (req, res) => res.writeHead(418).end(),
  '/hints': (req, res) => { res.writeEarlyHints({ link: '</c.css>; rel=preload' }); res.end('hinted') },
  '/refuse': (req, res) => res.writeHead(413, { connection: 'close' }).end('too large'),
  '/trailers': (req, res) => {
    res.writeHead(200, { 'content-type': 'text/plain', trailer: 'X-Sum' })
    res.write('part one, ')
    res.write('part two')
    res.addTrailers({ 'X-Sum': crypto.createHash('md5').update('part one, part two').digest('hex') })
    res.end()
  },
  '/events': (req, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
    let n = 0
    const tick = setInterval(() => {
      res.write(`id: ${++n}\ndata: tick ${n}\n\n`)
      if (n === 5) { clearInterval(tick); res.end() }
    }, 20)
    req.on('close', () => clearInterval(tick))
  },
}

const server = http.createServer((req, res) => {
  const route = routes[req.url.split('?')[0]]
  if (route) return route(req, res)
  echo(req, res)
})

// An echo of short text frames, as RFC 6455 has them.
server.on('upgrade', (req, socket) => {
  const accept = crypto.createHash('sha1').update(req.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ' + accept + '\r\n\r\n')
  socket.on('error', () => {})
  socket.on('data', (b) => {
    if ((b[0] & 15) === 8) return socket.end(Buffer.from([0x88, 0]))
    const length = b[1] & 127
    const mask = b.subarray(2, 6)
    const text = Buffer.from(b.subarray(6, 6 + length).map((c, i) => c ^ mask[i % 4]))
    socket.write(Buffer.concat([Buffer.from([0x81, length]), text]))
  })
})

server.listen(0, '127.0.0.1', () => console.log(server.address().port))
process.stdin.resume().on('end', () => process.exit()) // with whoever started it
