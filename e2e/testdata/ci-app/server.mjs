// An HTTP server on a free port of $ADDRESS. It says where once it can be reached.
import { createServer } from 'node:http'

const server = createServer((request, response) => response.end('served\n'))
server.listen(0, process.env.ADDRESS, () => {
  const { address, port } = server.address()
  console.log(`listening on ${address}:${port}`)
})
